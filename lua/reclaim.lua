-- reclaim: return tasks of a set whose aggregation was lost to their group, up to 100 per call.
--
-- Transition: aggregating stays aggregating        Go: reclaimStateAggregationSetsCmd
-- Differs from Go: the group is listed again (W19); bounded, and whoever still aggregates the set is refused
-- from the first call on; an id without a task is dropped.
--
-- KEYS
--   1  set          asynq:{<queue>}:g:<group>:<uuid>   ZSET
--   2  sets         asynq:{<queue>}:aggregation_sets   ZSET
--   3  group        asynq:{<queue>}:g:<group>          ZSET
--   4  groups       asynq:{<queue>}:groups             SET
-- ARGV
--   1  name         group name
--   2  cutoff       only if the deadline is at this unix second or earlier; +inf for any
--   3  task_prefix  asynq:{<queue>}:t:
-- DERIVED
--   task_prefix .. id
-- RETURNS how many tasks were returned, and how many are left in the set; -1 twice when the set is not
--   listed, or its deadline is later
-- needs: write
local set, sets, group, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local name, cutoff, task_prefix = ARGV[1], ARGV[2], ARGV[3]

local deadline = redis.call('ZSCORE', sets, set)
if not deadline or (cutoff ~= '+inf' and tonumber(deadline) > tonumber(cutoff)) then
  return { -1, -1 }
end
local members = redis.call('ZRANGE', set, 0, 99, 'WITHSCORES')
local back = 0
for n = 1, #members, 2 do
  local id, score = members[n], members[n + 1]
  if redis.call('EXISTS', task_prefix .. id) == 1 then
    write('ZADD', group, score, id)
    back = back + 1
  end
  redis.call('ZREM', set, id)
end
if back > 0 then
  redis.pcall('SADD', groups, name)
end
local left = redis.call('ZCARD', set)
if left == 0 then
  redis.call('ZREM', sets, set)
end
return { back, left }
