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
local record, paused = KEYS[1], KEYS[2]

if redis.call('HGET', record, 'queue') then
  return 0
end
redis.call('HSET', record, 'queue', '1')
redis.call('EXPIRE', record, ARGV[2])
if ARGV[1] ~= '' then
  redis.call('SET', paused, ARGV[1], 'NX')
end
for key = 3, #KEYS do
  local at = 3 + 2 * (key - 3)
  local value, expires = tonumber(ARGV[at]), ARGV[at + 1]
  -- A counter of another type, or at its end, is left alone: statistics never stand in the way.
  if redis.pcall('INCRBY', KEYS[key], ARGV[at]) == value and expires ~= '0' then
    redis.call('EXPIREAT', KEYS[key], expires)
  end
end
return 1
