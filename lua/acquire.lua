-- acquire: take a token of a semaphore.
--
-- Transition: none                         Go: acquireCmd of x/rate
-- Differs from Go: whoever holds a token gets it again, also when none is free, and holds it until the new
-- expiry; a caller whose clock is wrong takes nobody's token away.
--
-- KEYS
--   1  semaphore  asynq:sema:<scope>  ZSET of holders by the unix second at which they lose their token, less the token's mark
-- ARGV
--   1  holder     id of the task, or of whoever else it is
--   2  now        unix time in seconds
--   3  expires    unix second at which the token is lost, less the token's mark, which is a part of a second
--   4  max        how many tokens there are
--   5  tolerance  by how many seconds now may differ from the clock of Redis; empty for any number
-- RETURNS
--   1  taken
--   0  none is free
--   or the unix second by the clock of Redis, from which now differs by more; nothing was written
local semaphore, holder, now, expires, max = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local tolerance = ARGV[5]

if tolerance ~= '' then
  local time = redis.pcall('TIME')
  -- A user who may not ask goes by the clock that he has.
  if not time.err and math.abs(time[1] - now) > tonumber(tolerance) then
    return tonumber(time[1])
  end
end

-- A second late, as in Go.
redis.call('ZREMRANGEBYSCORE', semaphore, '-inf', now - 1)
if redis.call('ZCARD', semaphore) >= max and not redis.call('ZSCORE', semaphore, holder) then
  return 0
end
redis.call('ZADD', semaphore, expires, holder)
return 1
