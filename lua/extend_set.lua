-- extend_set: give an aggregation more time.
--
-- Transition: none                         Go: none (a slow aggregator loses its set, W24)
--
-- KEYS
--   1  set       asynq:{<queue>}:g:<group>:<uuid>  ZSET
--   2  sets      asynq:{<queue>}:aggregation_sets  ZSET
-- ARGV
--   1  count     how many tasks the set has to have
--   2  deadline  unix second at which the aggregation counts as lost from now on
-- RETURNS
--   1  done
--   0  the set was reclaimed; nothing was written
-- needs: holds write
local set, sets, count, deadline = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if not holds(sets, set, count) then
  return 0
end
write('ZADD', sets, 'XX', 'GT', deadline, set)
return 1
