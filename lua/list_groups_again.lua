-- list_groups_again: list groups which have tasks, 1 to 100 per call.
--
-- Transition: none                         Go: none
-- When Go puts the tasks of a lost aggregation back into their group, it does not list the group (W19).
--
-- KEYS
--   1  groups        asynq:{<queue>}:groups  SET
-- ARGV
--   1  group_prefix  asynq:{<queue>}:g:
--   then for each group
--   +1 name          group name
-- DERIVED
--   group_prefix .. name
-- RETURNS how many were not listed
local groups, group_prefix = KEYS[1], ARGV[1]

local added = 0
for n = 2, #ARGV do
  local size = redis.pcall('ZCARD', group_prefix .. ARGV[n])
  if type(size) == 'number' and size > 0 then
    added = added + redis.call('SADD', groups, ARGV[n])
  end
end
return added
