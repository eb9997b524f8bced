-- list_expired: the active tasks whose leases have ended, oldest first.
--
-- Transition: none; retry or archive follows, for each task        Go: listLeaseExpiredCmd
-- Differs from Go: bounded; an id without a task is dropped here and reported with an empty message (W12).
--
-- KEYS
--   1  lease        asynq:{<queue>}:lease   ZSET
--   2  active       asynq:{<queue>}:active  LIST
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  cutoff       leases that ended at this unix second or earlier
--   3  limit        how many at the most
-- DERIVED
--   task_prefix .. id
-- RETURNS for each: id, lease expiry, msg
local lease, active = KEYS[1], KEYS[2]
local task_prefix, cutoff, limit = ARGV[1], ARGV[2], ARGV[3]

local reply = {}
local expired = redis.call('ZRANGEBYSCORE', lease, '-inf', cutoff, 'WITHSCORES', 'LIMIT', 0, limit)
for n = 1, #expired, 2 do
  local id = expired[n]
  local fields = redis.pcall('HMGET', task_prefix .. id, 'msg', 'state')
  local msg = not fields.err and fields[1] or ''
  local elsewhere = msg ~= '' and fields[2] ~= 'active'
  if elsewhere then
    -- A lease that was left behind; the task has another place.
    redis.call('ZREM', lease, id)
  elseif msg == '' then
    redis.pcall('LREM', active, 0, id)
    redis.call('ZREM', lease, id)
    if not fields.err then
      redis.call('DEL', task_prefix .. id)
    end
  end
  if not elsewhere then
    reply[#reply + 1] = id
    reply[#reply + 1] = expired[n + 1]
    reply[#reply + 1] = msg
  end
end
return reply
