-- flow_forget: delete a tree, so many flows of it, the last ones first. A tree that is not over stays.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  count   how many flows to delete at the most
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':states', ':keys', ':kids', ':messages', ':names', ':before', ':after', ':signals', ':runs'
-- RETURNS 1 if something is left, 2 if the tree is not over, else 0
-- needs: flow_unlink
local todo = KEYS[1]
local prefix, count = ARGV[1], tonumber(ARGV[2])

local root = prefix .. '0:flow'
if redis.call('EXISTS', root) == 1 and not redis.call('HGET', root, 'over') then
  return 2
end
local flows = tonumber(redis.call('HGET', root, 'flows')) or 1
local first = math.max(0, flows - count)
for number = flows - 1, first, -1 do
  flow_unlink(prefix, number)
end
if first > 0 then
  redis.call('HSET', root, 'flows', first, 'forgotten', 1)
  return 1
end
redis.call('DEL', todo)
return 0
