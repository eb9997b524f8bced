-- list_groups_again: list groups which have tasks, and take those off the list which have none; 1 to 100 per
-- call.
--
-- Transition: none                         Go: none
-- When Go puts the tasks of a lost aggregation back into their group, it does not list the group (W19). Where
-- all listed groups are empty, Go divides by zero, and its tools show -9223372036854775808 bytes.
--
-- KEYS
--   1  groups        asynq:{<queue>}:groups  SET
-- ARGV
--   1  group_prefix  asynq:{<queue>}:g:
--   then for each group
--   +1 name          group name
-- DERIVED
--   group_prefix .. name
-- RETURNS how many were listed, and how many were taken off
-- needs: write
local groups, group_prefix = KEYS[1], ARGV[1]

local added, removed = 0, 0
for _, name in ipairs({ unpack(ARGV, 2) }) do
  local size = redis.pcall('ZCARD', group_prefix .. name)
  if type(size) == 'number' and size > 0 then
    added = added + write('SADD', groups, name)
  elseif size == 0 then
    removed = removed + redis.call('SREM', groups, name)
  end
end
return { added, removed }
