-- pause_entry: pause a periodic entry, or resume it.
--
-- Transition: none                         Go: none
-- The ticks that come while it is paused are dealt with and enqueue nothing.
--
-- KEYS
--   1  entry  asynq:{<queue>}:x:cron:<entry>  HASH
-- ARGV
--   1  since  unix second at which it is paused; empty to resume it
-- RETURNS
--   1  done
--   0  it was so already
--   2  there is no such entry; nothing was written
local entry, since = KEYS[1], ARGV[1]

if redis.call('EXISTS', entry) == 0 then
  return 2
end
if since ~= '' then
  return redis.call('HSETNX', entry, 'paused', since)
end
return redis.call('HDEL', entry, 'paused')
