-- pause_entry: pause a periodic entry, or resume it.
--
-- Transition: none                         Go: none
-- A scheduler deals with the ticks that are due while it is paused, and they enqueue nothing. If none is there when
-- it is resumed, that is made good here, so that they do not count as missed. Otherwise a tick may wait for its
-- jitter, and stays.
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
local have = redis.call('HMGET', entry, 'upto', 'shown_until')
-- The present second may hold a tick.
if tonumber(have[2] or 0) < now and now - 1 > tonumber(have[1] or now) then
  redis.call('HSET', entry, 'upto', string.format('%.0f', now - 1))
end
return 'a'
