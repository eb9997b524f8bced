-- remove_limits: delete what is kept of the limits of a queue, unless somebody has set one, or tasks wait in lanes.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  rules    asynq:{<queue>}:x:rules        STRING
--   2  waiting  asynq:{<queue>}:x:waiting      ZSET
--   3  due      asynq:{<queue>}:x:due          ZSET
--   4  slots    asynq:{<queue>}:x:slots        ZSET
--   5  changes  asynq:{<queue>}:x:lanes        HASH
--   6  stats    asynq:{<queue>}:x:limit-stats  HASH
-- ARGV
--   1  none     the text of the rules when there is none
-- RETURNS
--   1   deleted
--   0   tasks wait in lanes; nothing was written
--   2   there are limits; nothing was written
local rules, waiting, due, slots, changes, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local none = ARGV[1]

local stands = redis.call('GET', rules)
if stands and stands ~= none then
  return 2
elseif redis.call('EXISTS', waiting) == 1 then
  return 0
end
redis.call('DEL', rules, due, slots, changes, stats)
return 1
