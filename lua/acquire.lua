-- acquire: take a token of a semaphore.
--
-- Transition: none                         Go: acquireCmd of x/rate
-- Differs from Go: whoever holds a token gets it again, also when none is free, and holds it until the new
-- expiry.
--
-- KEYS
--   1  semaphore  asynq:sema:<scope>  ZSET of holders by the unix second at which they lose their token
-- ARGV
--   1  holder     id of the task, or of whoever else it is
--   2  now        unix time in seconds
--   3  expires    unix second at which the token is lost
--   4  max        how many tokens there are
-- RETURNS
--   1  taken
--   0  none is free
local semaphore, holder, now, expires, max = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

-- A second late, as in Go.
redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', now - 1)
if redis.call('ZCARD', semaphore) >= max and not redis.call('ZSCORE', semaphore, holder) then
  return 0
end
redis.call('ZADD', semaphore, expires, holder)
return 1
