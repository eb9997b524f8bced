-- release: give a token of a semaphore back.
--
-- Transition: none                         Go: releaseCmd of x/rate
-- Differs from Go: with an expiry, only the token that was taken with it, so that a late attempt at a task
-- does not give back the token of the next.
--
-- KEYS
--   1  semaphore  asynq:sema:<scope>  ZSET
-- ARGV
--   1  holder     id of the task, or of whoever else it is
--   2  expires    unix second at which the token would be lost; empty for any
-- RETURNS
--   1  given back
--   0  it was not held; nothing was written
local semaphore, holder, expires = KEYS[1], ARGV[1], ARGV[2]

if expires ~= '' and redis.call('ZSCORE', semaphore, holder) ~= expires then
  return 0
end
return redis.call('ZREM', semaphore, holder)
