-- take_duties: take the duties whose next look has come, at most as many as are asked for, those that go first before the others.
--
-- Transition: none                         Go: none
-- A duty that was taken is not lost with the leader that took it: it is due again at the end of the hold. Because it is
-- not due until then, a server that takes itself for the leader and no longer is does not do it as well.
--
-- KEYS
--   1  duties  asynq:x:duties  ZSET of <duty> <subject> by the unix time in milliseconds of the next look; of those that go
--      first, less the head start, which makes it negative
-- ARGV
--   1  now         unix time in milliseconds
--   2  held        unix time in milliseconds at which what is taken is due again
--   3  count       how many to take at the most
--   4  head_start  milliseconds
-- RETURNS an array: of each duty that was taken its text, as it stands in the set, and its score now
-- needs: write
local duties, now, held, count, head_start = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local taken, again = {}, {}
local function take(from, earlier, most)
  local to, score = string.format('%d', now - earlier), string.format('%d', held - earlier)
  for _, duty in ipairs(redis.call('ZRANGEBYSCORE', duties, from, to, 'LIMIT', 0, most)) do
    taken[#taken + 1] = { duty, score }
    again[#again + 1] = score
    again[#again + 1] = duty
  end
end
-- However much goes first, the others have a quarter.
take('-inf', head_start, count - math.floor(count / 4))
take('0', 0, count - #taken)
if #taken > 0 then
  write('ZADD', duties, unpack(again))
end
return taken
