-- remove_key: delete a key that is no use to anybody, of which there is a copy.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  key     a key of another type than its name says, a counter that is no number, a lock, or what is left over of a batch
--   2  holder  asynq:{<queue>}:t:<id> of the task that a lock names, or the root of the batch, asynq:x:{<root>}:0:flow; else the key again
-- ARGV
--   1  copy      DUMP of the key
--   2  seen_msg  the message of the task when it was seen, or the second at which the root was created; '' when there was none
-- RETURNS
--   1  deleted
--   0  one of the two is not as it was; nothing was written
-- needs: is_wrong_type
local key, holder, copy, seen_msg = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('DUMP', key) ~= copy then
  return 0
end
if holder ~= key then
  local seen = redis.pcall('HMGET', holder, 'msg', 'created')
  if is_wrong_type(seen) or (seen[1] or seen[2] or '') ~= seen_msg then
    return 0
  end
end
redis.call('DEL', key)
return 1
