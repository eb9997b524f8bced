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
--   3  limit        how many to look at
--   4  skip         how many to leave out, because nothing could be done about them before
-- DERIVED
--   task_prefix .. id
-- RETURNS how many were looked at; the unix second at which the next lease ends ('' for none); then for
--   each task: id, lease expiry, msg, owner, x_crashes ('' for none)
local lease, active = KEYS[1], KEYS[2]
local task_prefix, cutoff, limit, skip = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local expired = redis.call('ZRANGEBYSCORE', lease, '-inf', cutoff, 'WITHSCORES', 'LIMIT', skip, limit)
local alive = redis.call('ZRANGEBYSCORE', lease, '(' .. cutoff, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local reply = { #expired / 2, alive[2] or '' }
for n = 1, #expired, 2 do
  local id = expired[n]
  local fields = redis.pcall('HMGET', task_prefix .. id, 'msg', 'state', 'owner', 'x_crashes')
  local is_stray = stray(fields)
  local msg = not is_stray and fields[1] or ''
  local elsewhere = msg ~= '' and fields[2] ~= 'active'
  if elsewhere then
    -- A lease that was left behind; the task has another place.
    redis.call('ZREM', lease, id)
  elseif msg == '' then
    redis.pcall('LREM', active, 0, id)
    redis.call('ZREM', lease, id)
    if not is_stray then
      redis.call('DEL', task_prefix .. id)
    end
  end
  if not elsewhere then
    reply[#reply + 1] = id
    reply[#reply + 1] = expired[n + 1]
    reply[#reply + 1] = msg
    reply[#reply + 1] = fields[3] or ''
    reply[#reply + 1] = fields[4] or ''
  end
end
return reply
