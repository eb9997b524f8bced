-- enqueue: store new tasks and make them pending, 1 to 100 per call.
--
-- Transition: (absent) -> pending          Go: enqueueCmd, enqueueUniqueCmd
-- Differs from Go: the uniqueness lock is taken only when the id is free too, so that an id conflict
-- leaves no lock behind (W22); a message sent twice is told from a conflict (W10).
--
-- Three forms, because every argument costs Redis time: a single task without a lock (2 KEYS), tasks
-- without locks (1 KEY), and any tasks.
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending  LIST
--   then for each task, but in the second form
--   +1 task     asynq:{<queue>}:t:<id>   HASH
--   +2 lock     asynq:{<queue>}:unique:...  STRING; the task key again when there is none;
--               left out in the first form
-- ARGV
--   1  now_ns   unix time in nanoseconds
--   2  task_prefix  asynq:{<queue>}:t:, in the second form only
--   then for each task
--   +1 id       task id
--   +2 msg      encoded task message
--   +3 ttl      seconds the lock lives; 0 for no lock; in the third form only
-- DERIVED
--   task_prefix .. id
-- RETURNS one character for each task
--   1  stored
--   0  the id is taken; nothing was written
--   2  the id is taken by this very message; nothing was written
--   3  another task holds the lock; nothing was written
-- needs: can_store can_store_all take_lock
local pending, now_ns = KEYS[1], ARGV[1]

if #KEYS == 2 or #KEYS == 3 then
  local task, lock = KEYS[2], KEYS[3]
  local id, msg, ttl = ARGV[2], ARGV[3], ARGV[4] or '0'
  local verdict = can_store(task, lock, id, msg, ttl)
  if verdict == '1' then
    -- The list first: if it has another type, the error comes before anything was written.
    redis.call('LPUSH', pending, id)
    redis.call('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', now_ns)
    take_lock(task, lock, id, ttl)
  end
  return verdict
end

if #KEYS == 1 then
  local task_prefix = ARGV[2]
  local verdicts, tasks, ids, messages, seen = {}, {}, {}, {}, {}
  for arg = 3, #ARGV, 2 do
    tasks[#tasks + 1] = task_prefix .. ARGV[arg]
  end
  local all_free = redis.call('EXISTS', unpack(tasks)) == 0
  for n = 1, #tasks do
    local task, id, msg = tasks[n], ARGV[2 * n + 1], ARGV[2 * n + 2]
    local verdict
    if seen[id] then
      verdict = '0'
    elseif all_free then
      verdict = '1'
    else
      verdict = can_store(task, task, id, msg, '0')
    end
    if verdict == '1' then
      seen[id] = true
      ids[#ids + 1] = id
      messages[#messages + 1] = msg
    end
    verdicts[n] = verdict
  end
  if #ids > 0 then
    redis.call('LPUSH', pending, unpack(ids))
    for n = 1, #ids do
      redis.call('HSET', task_prefix .. ids[n], 'msg', messages[n], 'state', 'pending', 'pending_since', now_ns)
    end
  end
  return table.concat(verdicts)
end

local verdicts, keys, args = can_store_all(2, 2, 3)
if #keys > 0 then
  local ids = {}
  for n = 1, #args do
    ids[n] = ARGV[args[n]]
  end
  redis.call('LPUSH', pending, unpack(ids))
  for n = 1, #keys do
    local key, arg = keys[n], args[n]
    redis.call('HSET', KEYS[key], 'msg', ARGV[arg + 1], 'state', 'pending', 'pending_since', now_ns)
    take_lock(KEYS[key], KEYS[key + 1], ARGV[arg], ARGV[arg + 2])
  end
end
return table.concat(verdicts)
