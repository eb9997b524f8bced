-- remove_key: delete a key that is no use to anybody, of which there is a copy.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  key     a key of another type than its name says, a counter that is no number, or a lock
--   2  holder  asynq:{<queue>}:t:<id> of the task that a lock names; else the key again
-- ARGV
--   1  copy      DUMP of the key
--   2  seen_msg  the message of the task when it was seen; '' when there was none
-- RETURNS
--   1  deleted
--   0  one of the two is not as it was; nothing was written
-- needs: is_wrong_type
local key, holder, copy, seen_msg = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('DUMP', key) ~= copy then
  return 0
end
if holder ~= key then
  local msg = redis.pcall('HGET', holder, 'msg')
  if is_wrong_type(msg) or (msg or '') ~= seen_msg then
    return 0
  end
end
redis.call('DEL', key)
return 1
