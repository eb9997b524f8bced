-- dequeue: give pending tasks to a worker, under a lease, up to 100 per call.
--
-- Transition: pending -> active            Go: dequeueCmd
-- Differs from Go: several tasks per call (W04), fewer where they are large; an id without a task is dropped and reported instead of
-- haunting the queue (W12); the field owner names the run.
--
-- KEYS
--   1  paused   asynq:{<queue>}:paused   STRING
--   2  pending  asynq:{<queue>}:pending  LIST
--   3  active   asynq:{<queue>}:active   LIST
--   4  lease    asynq:{<queue>}:lease    ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  expires      unix second at which the lease ends
--   3  run          token that names this run
--   4  count        how many tasks to take at the most
--   5  timed        1: say also since when each task was pending; else 0
--   6  bytes        no more tasks once their messages have so many bytes
-- DERIVED
--   task_prefix .. id, and the lock that a dropped stub still names
-- RETURNS id, msg, id, msg, ... oldest first; an empty msg marks an id that was dropped because it had
--   no message. When timed, id, msg, pending_since (unix nanoseconds; empty when it is not known).
--   Empty when there is nothing; the integer 0 when the queue is paused.
-- needs: delete_task is_wrong_type make_active write
local paused, pending, active, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, expires, run, limit, timed = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local room = tonumber(ARGV[6])

if redis.call('EXISTS', paused) == 1 then
  return 0
end

if limit == '1' then
  local id = write('RPOPLPUSH', pending, active)
  if not id then
    return {}
  end
  local leased = redis.pcall('ZADD', lease, expires, id)
  if type(leased) == 'table' then
    redis.call('LPOP', active)
    redis.call('RPUSH', pending, id)
    return leased
  end
  local task = task_prefix .. id
  local msg = redis.pcall('HGET', task, 'msg')
  if type(msg) == 'string' and msg ~= '' then
    local since = timed and (redis.call('HGET', task, 'pending_since') or '')
    redis.call('HSET', task, 'state', 'active', 'owner', run)
    redis.call('HDEL', task, 'pending_since')
    return { id, msg, since or nil }
  end
  -- An id without a task: back with it, for the general way below knows what to do.
  redis.call('LPOP', active)
  redis.call('ZREM', lease, id)
  redis.call('RPUSH', pending, id)
end

local waiting = redis.call('LRANGE', pending, -limit, -1)
if #waiting == 0 then
  return {}
end
local reply, ids, missing = {}, {}, {}
for n = #waiting, 1, -1 do
  if room <= 0 then
    break
  end
  local id = waiting[n]
  local msg = redis.pcall('HGET', task_prefix .. id, 'msg')
  local is_task = not is_wrong_type(msg) and msg and msg ~= ''
  reply[#reply + 1] = id
  reply[#reply + 1] = is_task and msg or ''
  if timed then
    reply[#reply + 1] = is_task and redis.call('HGET', task_prefix .. id, 'pending_since') or ''
  end
  local kind = is_task and ids or missing
  kind[#kind + 1] = id
  room = room - (is_task and #msg or 0)
end
local refused = make_active(active, lease, task_prefix, ids, expires, run)
if refused then
  return refused
end
redis.call('LTRIM', pending, 0, -#ids - #missing - 1)
for n = 1, #missing do
  delete_task(task_prefix, missing[n])
end
return reply
