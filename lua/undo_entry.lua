-- undo_entry: list an id again that a repair has taken out of a list or set.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  place  LIST or ZSET
-- ARGV
--   1  id     task id
--   2  score  its score; '' in a list
-- RETURNS
--   1  done
--   0  it is there already, or the key has another type; nothing was written
local place, id, score = KEYS[1], ARGV[1], ARGV[2]

local key_type = redis.call('TYPE', place).ok
if key_type ~= 'none' and key_type ~= (score == '' and 'list' or 'zset') then
  return 0
end
if score ~= '' then
  return redis.call('ZADD', place, 'NX', score, id)
end
if redis.call('LPOS', place, id) then
  return 0
end
redis.call('RPUSH', place, id)
return 1
