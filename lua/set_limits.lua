-- set_limits: write the limits of a queue, if they are still as the caller saw them, and have up to 100 lanes looked at now; to be
-- called until none is left.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  rules   asynq:{<queue>}:x:rules  STRING
--   2  due     asynq:{<queue>}:x:due    ZSET
-- ARGV
--   1  before  what the caller saw; empty for nothing
--   2  after   what is to stand there; empty: whatever stands there stays
-- RETURNS -1 if the limits have changed since; else how many lanes are to be looked at that were not
-- needs: first_ms
local rules, due = KEYS[1], KEYS[2]
local before, after = ARGV[1], ARGV[2]

local stands = redis.call('GET', rules) or ''
if after ~= '' and stands ~= before and stands ~= after then
  return -1
end
local closed, dues = redis.call('ZRANGEBYSCORE', due, string.format('%.0f', first_ms()), '+inf', 'LIMIT', 0, 100), {}
if after ~= '' and stands ~= after then
  redis.call('SET', rules, after)
end
for n = 1, #closed do
  dues[2 * n - 1], dues[2 * n] = 0, closed[n]
end
if #closed > 0 then
  redis.call('ZADD', due, unpack(dues))
end
return #closed
