-- release: give a token of a semaphore back.
--
-- Transition: none                         Go: releaseCmd of x/rate
-- Differs from Go: with a mark, only the token that was taken with it, so that what comes late, from an attempt before or from
-- this one, does not give back a token that was taken since.
--
-- KEYS
--   1  semaphore  asynq:sema:<scope>  ZSET
-- ARGV
--   1  holder     id of the task, or of whoever else it is
--   2  mark       by which part of a second the token's score is less than a whole one; empty for any token
-- RETURNS
--   1  given back
--   0  it was not held; nothing was written
local semaphore, holder, mark = KEYS[1], ARGV[1], ARGV[2]

if mark ~= '' then
  local score = tonumber(redis.call('ZSCORE', semaphore, holder) or '')
  if not score or math.ceil(score) - score ~= tonumber(mark) then
    return 0
  end
end
return redis.call('ZREM', semaphore, holder)
