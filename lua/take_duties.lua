-- take_duties: take the duties whose next look has come, at most as many as are asked for.
--
-- Transition: none                         Go: none
-- A duty that was taken is not lost with the leader that took it: it is due again at the end of the hold. Because it is
-- not due until then, a server that takes itself for the leader and no longer is does not do it as well.
--
-- KEYS
--   1  duties  asynq:x:duties  ZSET of <duty> <subject> by the unix time in milliseconds of the next look
-- ARGV
--   1  now     unix time in milliseconds
--   2  held    unix time in milliseconds at which what is taken is due again
--   3  count   how many to take at the most
-- RETURNS an array: the duties that were taken, as they stand in the set
local duties, now, held, count = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local due = redis.call('ZRANGEBYSCORE', duties, '-inf', now, 'LIMIT', 0, count)
if #due == 0 then
  return due
end
local again = {}
for _, duty in ipairs(due) do
  again[#again + 1] = held
  again[#again + 1] = duty
end
-- The removal first: then Redis lets the rest happen when it is out of memory.
redis.call('ZREM', duties, unpack(due))
redis.call('ZADD', duties, unpack(again))
return due
