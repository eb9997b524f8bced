-- write_operation: take an operation, or keep it, and write down how far it has come; or put it down, or end it.
--
-- Transition: none        Go: none
-- An operation belongs to whoever's name stands in its lease. Whoever ends it, or stops for now, frees the lease.
--
-- KEYS
--   1  operation  asynq:x:op:{<id>}        HASH
--   2  lease      asynq:x:op:{<id>}:lease  STRING
-- ARGV
--   1  who        name of the process, for this operation
--   2  lease_ms   milliseconds for which it has the operation; 0 to free it
--   3  keep       seconds for which the operation is kept after this
--   then for each field, at most 20
--   +1 field      a field of the operation
--   +2 value      its value
-- RETURNS a word; with over and others nothing was written
--   run        go on
--   pause      somebody wants it to pause
--   cancel     somebody wants it to end
--   others     another process has it
--   over       it has ended, or is not there
local operation, lease = KEYS[1], KEYS[2]
local who, lease_ms, keep = ARGV[1], ARGV[2], ARGV[3]

local known = redis.call('HMGET', operation, 'what', 'ended_ms', 'wish')
if not known[1] or known[2] then
  return 'over'
end
local holder = redis.call('GET', lease)
if holder and holder ~= who then
  return 'others'
end
if #ARGV > 3 then
  redis.call('HSET', operation, unpack(ARGV, 4))
end
redis.call('EXPIRE', operation, keep)
if lease_ms == '0' then
  redis.call('DEL', lease)
else
  redis.call('SET', lease, who, 'PX', lease_ms)
end
return known[3] or 'run'
