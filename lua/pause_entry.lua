-- pause_entry: pause a periodic entry, or resume it.
--
-- Transition: none                         Go: none
-- The ticks that come while it is paused are dealt with and enqueue nothing; if no scheduler was there to deal
-- with them, that is made good when it is resumed, so that they do not count as missed.
--
-- KEYS
--   1  entry  asynq:{<queue>}:x:cron:<entry>  HASH
-- ARGV
--   1  since  unix second at which it is paused; empty to resume it
--   2  now    unix time in seconds
-- RETURNS one letter
--   a  applied
--   t  it was so already
--   m  there is no such entry; nothing was written
local entry, since, now = KEYS[1], ARGV[1], ARGV[2]

if redis.call('EXISTS', entry) == 0 then
  return 'm'
end
if since ~= '' then
  return redis.call('HSETNX', entry, 'paused', since) == 1 and 'a' or 't'
end
if redis.call('HDEL', entry, 'paused') == 0 then
  return 't'
end
-- A clock that is ahead must not deal with the ticks of the days to come.
now = math.min(tonumber(now), tonumber(redis.call('TIME')[1]))
-- The present second may hold a tick.
if now - 1 > tonumber(redis.call('HGET', entry, 'upto') or now) then
  redis.call('HSET', entry, 'upto', string.format('%.0f', now - 1))
end
return 'a'
