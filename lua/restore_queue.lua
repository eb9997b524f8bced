-- restore_queue: add the counters that a queue had in another Redis, and its pause; once for each export.
--
-- Transition: none (statistics and pause)  Go: (none)
--
-- KEYS
--   1  record   asynq:{<queue>}:x:import:<export>  HASH: queue
--   2  paused   asynq:{<queue>}:paused             STRING
--   then for each counter, at most 200
--   +1 counter  asynq:{<queue>}:processed, failed, or one of a day  STRING
-- ARGV
--   1  since    value of the pause; empty when the queue was not paused
--   2  keep     seconds to keep the record
--   then for each counter
--   +1 value    what to add
--   +2 expires  unix second at which a new counter expires; 0 for never
-- RETURNS
--   1  done
--   0  done before; nothing was written
-- needs: nth
local record, paused, since, keep = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('HGET', record, 'queue') then
  return 0
end
redis.call('HSET', record, 'queue', '1')
redis.call('EXPIRE', record, keep)
if since ~= '' then
  redis.call('SET', paused, since, 'NX')
end
for n, counter in ipairs({ unpack(KEYS, 3) }) do
  local value, expires = nth(ARGV, 3, 2, n)
  -- A counter of another type, or at its end, is left alone: statistics never stand in the way.
  if redis.pcall('INCRBY', counter, value) == tonumber(value) and expires ~= '0' then
    redis.call('EXPIREAT', counter, expires)
  end
end
return 1
