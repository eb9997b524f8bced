-- store_once: store a new pending task once, however often that is asked for: its id is remembered for a day.
--
-- Transition: (absent) -> pending      Go: none
-- Whoever asks has claimed to do so until not_after, and is refused later, when others may have done it and this script may have
-- forgotten it. On a cluster the claim is by the clock of another node. Of more than max ids those that are older than an hour are forgotten early.
--
-- KEYS
--   1  pending    asynq:{<queue>}:pending  LIST
--   2  once       asynq:{<queue>}:x:once   ZSET
--   3  task       asynq:{<queue>}:t:<id>   HASH
-- ARGV
--   1  id         task id
--   2  msg        encoded task message
--   3  not_after  unix second of the end of the claim
--   4  max        how many ids are remembered
-- RETURNS one letter
--   a  stored
--   s  it was stored before; nothing was written
--   c  too late: the claim has ended; nothing was written
-- needs: store
local pending, once, task = KEYS[1], KEYS[2], KEYS[3]
local id, msg, not_after, max = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local DAY, HOUR = 86400, 3600
local time = redis.call('TIME')
local now = tonumber(time[1])
if now > not_after then
  return 'c'
end
if redis.call('ZSCORE', once, id) or redis.call('EXISTS', task) == 1 then
  return 's'
end
store('pending', pending, task, id, msg, time[1] .. string.format('%06d', time[2]) .. '000')
redis.call('ZADD', once, now + DAY, id)
local last = redis.call('ZCARD', once) > max and now + DAY - HOUR or now
redis.call('ZREMRANGEBYSCORE', once, '-inf', last)
return 'a'
