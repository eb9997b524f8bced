-- dequeue: give pending tasks to a worker, under a lease, up to 100 per call; of any type, or only of certain types,
-- while the others stay where they are.
--
-- Transition: pending -> active            Go: dequeueCmd
-- Differs from Go: several tasks per call (W04), fewer where they are large; an id without a task is dropped and reported
-- instead of being taken again and again (W12); the field owner names the run. Of certain types, it looks at the tasks that the
-- caller names, which has read their ids from the list before; what somebody else has taken meanwhile is passed over.
--
-- KEYS
--   1  paused   asynq:{<queue>}:paused   STRING
--   2  pending  asynq:{<queue>}:pending  LIST
--   3  active   asynq:{<queue>}:active   LIST
--   4  lease    asynq:{<queue>}:lease    ZSET
--   5  rules    asynq:{<queue>}:x:rules  STRING
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  expires      unix second at which the lease ends
--   3  run          token that names this run
--   4  limit        how many tasks to take at the most
--   5  timed        1: say also since when each task was pending; else 0
--   6  max_bytes    no more tasks once their messages have so many bytes
--   the rest only where certain types are wanted
--   7  side         1 or -1: the end of the list that the ids are near, head or tail
--   8  names        how many ids follow
--   9  exact        how many of the patterns after them are whole types; the rest are prefixes
--   then for each
--   +1 id           task ids, the first that is to be taken first; then patterns
-- DERIVED
--   task_prefix .. id, and the lock that a dropped stub still names
-- RETURNS letters, one for each task that it looked at
--   a  taken
--   r  dropped, because there was an id without a message
--   u  left where it is
--   m  not in the list any more
--   h  alone: the queue is paused
--   g  alone: the queue has limits, which dequeue_lanes goes by
--   then in their order of each a id, msg, and if timed pending_since (unix nanoseconds; empty when it is not known);
--   of each r id.
-- needs: write
local paused, pending, active, lease, rules = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local task_prefix, expires, run, limit, timed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local max_bytes, side, names, exact = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8]), tonumber(ARGV[9])

if redis.call('EXISTS', paused, rules) > 0 then
  return { redis.call('EXISTS', paused) == 1 and 'h' or 'g' }
end

-- A lone task takes Redis 79,000 instructions here, and 115,000 below (7.0, callgrind).
if limit == '1' and not side then
  local id = write('RPOPLPUSH', pending, active)
  if not id then
    return { '' }
  end
  local leased = redis.pcall('ZADD', lease, expires, id)
  local task = task_prefix .. id
  local msg = type(leased) ~= 'table' and redis.pcall('HGET', task, 'msg')
  if type(msg) == 'string' and msg ~= '' then
    local since = timed == '1' and (redis.call('HGET', task, 'pending_since') or '')
    redis.call('HSET', task, 'state', 'active', 'owner', run)
    redis.call('HDEL', task, 'pending_since')
    return { 'a', id, msg, since or nil }
  end
  -- Back with it: the general way below knows what to do.
  redis.call('LPOP', active)
  redis.call('RPUSH', pending, id)
  if type(leased) == 'table' then
    return leased
  end
  redis.call('ZREM', lease, id)
end

-- Look: at which tasks, from where to where; and by what they are chosen.
local ids, from, step, choose = nil, 1, 1, nil
if side then
  -- needs: choose_type
  ids = { unpack(ARGV, 10, 9 + names) }
  choose = choose_type(pending, task_prefix, side, { unpack(ARGV, 10 + names) }, exact)
else
  ids = redis.call('LRANGE', pending, -limit, -1)
  from, step = #ids, -1
end
if #ids == 0 then
  return { '' }
end

-- needs: is_wrong_type make_active
local words, taken, dropped, reply = {}, {}, {}, { '' }
local room, looked, count = tonumber(limit), 0, 1
for n = from, #ids + 1 - from, step do
  local id = ids[n]
  local task = task_prefix .. id
  local msg = redis.pcall('HGET', task, 'msg')
  if msg == '' or is_wrong_type(msg) then
    msg = false
  end
  local word = msg and 'a' or 'r'
  if choose then
    word = choose(id, msg)
  end
  looked = looked + 1
  words[looked] = word
  if word == 'a' then
    taken[#taken + 1] = id
    reply[count + 1], reply[count + 2] = id, msg
    count = count + 2
    if timed == '1' then
      count = count + 1
      reply[count] = redis.call('HGET', task, 'pending_since') or ''
    end
    room, max_bytes = room - 1, max_bytes - #msg
    if room == 0 or max_bytes <= 0 then
      break
    end
  elseif word == 'r' then
    dropped[#dropped + 1] = id
    count = count + 1
    reply[count] = id
  end
end
reply[1] = table.concat(words)

-- Hand out.
local refused = make_active(active, lease, task_prefix, taken, expires, run)
if refused then
  return refused
end
if not side then
  redis.call('LTRIM', pending, 0, -looked - 1)
else
  for n = 1, #taken do
    redis.call('LREM', pending, side, taken[n])
  end
end
if #dropped > 0 then
  -- needs: delete_task
  for n = 1, #dropped do
    delete_task(task_prefix, dropped[n])
  end
end
return reply
