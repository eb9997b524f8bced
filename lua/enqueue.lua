-- enqueue: store new tasks and make them pending, 1 to 100 per call.
--
-- Transition: (absent) -> pending          Go: enqueueCmd, enqueueUniqueCmd
-- Differs from Go: the uniqueness lock is taken only when the id is free too, so that an id conflict
-- leaves no lock behind (W22); a message sent twice is told from a conflict (W10).
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending  LIST
--   then for each task
--   +1 task     asynq:{<queue>}:t:<id>   HASH
--   +2 lock     asynq:{<queue>}:unique:...  STRING; the task key again when there is none;
--               left out for a single task without one
-- ARGV
--   1  now_ns   unix time in nanoseconds
--   then for each task
--   +1 id       task id
--   +2 msg      encoded task message
--   +3 ttl      seconds the lock lives; 0 for no lock; left out with the lock
-- RETURNS one character for each task
--   1  stored
--   0  the id is taken; nothing was written
--   2  the id is taken by this very message; nothing was written
--   3  another task holds the lock; nothing was written
local pending, now_ns = KEYS[1], ARGV[1]

if #KEYS <= 3 then
  local task, lock = KEYS[2], KEYS[3]
  local id, msg, ttl = ARGV[2], ARGV[3], ARGV[4] or '0'
  local verdict = admit(task, lock, id, msg, ttl)
  if verdict == '1' then
    -- The list first: if it has another type, the error comes before anything was written.
    redis.call('LPUSH', pending, id)
    redis.call('HSET', task, 'msg', msg, 'state', 'pending', 'pending_since', now_ns)
    take_lock(task, lock, id, ttl)
  end
  return verdict
end

-- One look tells whether any id is taken; only then is each looked at by itself.
local keys = {}
for key = 2, #KEYS, 2 do
  keys[#keys + 1] = KEYS[key]
end
local all_free = redis.call('EXISTS', unpack(keys)) == 0
local verdicts, ids, accepted, seen = {}, {}, {}, {}
local arg = 2
for key = 2, #KEYS, 2 do
  local task, lock = KEYS[key], KEYS[key + 1]
  local verdict
  if seen[task] then
    verdict = '0'
  elseif seen[lock] then
    verdict = '3'
  elseif all_free and ARGV[arg + 2] == '0' then
    verdict = '1'
  else
    verdict = admit(task, lock, ARGV[arg], ARGV[arg + 1], ARGV[arg + 2])
  end
  if verdict == '1' then
    seen[task], seen[lock] = true, true
    ids[#ids + 1] = ARGV[arg]
    accepted[#accepted + 1] = key
  end
  verdicts[#verdicts + 1] = verdict
  arg = arg + 3
end
if #ids > 0 then
  redis.call('LPUSH', pending, unpack(ids))
  for n = 1, #accepted do
    local key = accepted[n]
    local first = 2 + (key - 2) / 2 * 3
    redis.call('HSET', KEYS[key], 'msg', ARGV[first + 1], 'state', 'pending', 'pending_since', now_ns)
    take_lock(KEYS[key], KEYS[key + 1], ARGV[first], ARGV[first + 2])
  end
end
return table.concat(verdicts)
