-- remove_key: delete a key that is no use to anybody, of which there is a copy.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  key     a key of another type than its name says, a counter that is no number, a lock, or what is left over of a batch
--   then for each holder
--   +1 holder  asynq:{<queue>}:t:<id> of the task that a lock names, in each queue of the family; or the root of the batch, asynq:x:{<root>}:0:flow
-- ARGV
--   1  copy      DUMP of the key
--   then for each holder
--   +1 seen_msg  the message of the task when it was seen, or the second at which the root was created; '' when there was none
-- RETURNS
--   1  deleted
--   0  one of them is not as it was; nothing was written
-- needs: is_wrong_type nth
local key, copy = KEYS[1], ARGV[1]

if redis.call('DUMP', key) ~= copy then
  return 0
end
for n = 1, #KEYS - 1 do
  local holder = nth(KEYS, 2, 1, n)
  local seen_msg = nth(ARGV, 2, 1, n)
  local seen = redis.pcall('HMGET', holder, 'msg', 'created')
  if is_wrong_type(seen) or (seen[1] or seen[2] or '') ~= seen_msg then
    return 0
  end
end
redis.call('DEL', key)
return 1
