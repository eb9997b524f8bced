-- store_once: store new pending tasks once, however often that is asked for: their ids are remembered for a day. At most 25 per call.
--
-- Transition: (absent) -> pending      Go: none
-- Whoever asks has claimed to do so until not_after, and is refused later, when others may have done it and this script may have
-- forgotten it. On a cluster the claim is by the clock of another node. Of more than max ids those that are older than an hour are forgotten early.
--
-- KEYS
--   1  pending    asynq:{<queue>}:pending  LIST
--   2  once       asynq:{<queue>}:x:once   ZSET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>   HASH
-- ARGV
--   1  max        how many ids are remembered
--   then for each task
--   +1 id         task id
--   +2 msg        encoded task message
--   +3 not_after  unix second of the end of the claim
-- RETURNS one letter for each task
--   a  stored
--   s  it was stored before; nothing was written
--   c  too late: the claim has ended; nothing was written
-- needs: nth store
local pending, once = KEYS[1], KEYS[2]
local max = tonumber(ARGV[1])

local DAY, HOUR = 86400, 3600
local time = redis.call('TIME')
local now, since = tonumber(time[1]), time[1] .. string.format('%06d', time[2]) .. '000'
local forgotten = string.format('%d', now + DAY)
local words, stored = {}, {}
for n, task in ipairs({ unpack(KEYS, 3) }) do
  local id, msg, not_after = nth(ARGV, 2, 3, n)
  local word = 'a'
  if now > tonumber(not_after) then
    word = 'c'
  elseif redis.call('ZSCORE', once, id) or redis.call('EXISTS', task) == 1 then
    word = 's'
  else
    store('pending', pending, task, id, msg, since)
    stored[#stored + 1] = forgotten
    stored[#stored + 1] = id
  end
  words[n] = word
end
if #stored > 0 then
  redis.call('ZADD', once, unpack(stored))
  local last = redis.call('ZCARD', once) > max and now + DAY - HOUR or now
  redis.call('ZREMRANGEBYSCORE', once, '-inf', string.format('%d', last))
end
return table.concat(words)
