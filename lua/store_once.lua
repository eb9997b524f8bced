-- store_once: store new tasks once, however often that is asked for: their keys, or else their ids, are remembered for a day. All come into the same
-- state and place. At most 25 per call.
--
-- Transition: (absent) -> pending, scheduled or aggregating      Go: none
-- Whoever asks has claimed to do so until not_after, and is refused later, when others may have done it and this script may have
-- forgotten it. On a cluster the claim is by the clock of another node. Of more than max keys those that are older than an hour are forgotten
-- early; whoever knows that nobody asks for one again makes it older.
--
-- KEYS
--   1  place      asynq:{<queue>}:pending, :scheduled or :g:<group>   LIST or ZSET
--   2  once       asynq:{<queue>}:x:once    ZSET
--   3  groups     asynq:{<queue>}:groups    SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>    HASH
-- ARGV
--   1  max        how many keys are remembered
--   2  state      pending, scheduled or aggregating
--   3  each       how many arguments each task has: 3, or 8 where they have keys
--   then for each task
--   +1 id         task id
--   +2 msg        encoded task message
--   +3 not_after  unix second of the end of the claim
--   +4 key        what is remembered instead of the id
--   +5 lock       name of its lock; empty for none
--   +6 ttl        seconds the lock lives; 0 for no lock, below 0 for a window
--   +7 score      its score in the set of its state
--   +8 group      group name; empty for none
-- RETURNS one letter for each task
--   a  stored
--   s  it was stored before; nothing was written
--   c  too late: the claim has ended; nothing was written
--   i  the id is taken; nothing was written
--   l  another task holds the lock; nothing was written
-- needs: can_store nth store
local place, once, groups = KEYS[1], KEYS[2], KEYS[3]
local max, state, each = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local DAY, HOUR = 86400, 3600
local time = redis.call('TIME')
local now, since = tonumber(time[1]), time[1] .. string.format('%06d', time[2]) .. '000'
local forgotten = string.format('%d', now + DAY)
local words, stored = {}, {}
for n, task in ipairs({ unpack(KEYS, 4) }) do
  local id, msg, not_after, key, lock, ttl, score, group = nth(ARGV, 4, each, n)
  key, ttl = key or id, ttl or '0'
  local word = 'c'
  if now <= tonumber(not_after) then
    word = redis.call('ZSCORE', once, key) and 's' or can_store(task, id, msg, lock, ttl)
  end
  if word == 'a' then
    store(state, place, task, id, msg, state == 'pending' and since or score, lock, ttl, group, state == 'aggregating' and groups)
    stored[#stored + 1] = forgotten
    stored[#stored + 1] = key
  end
  words[n] = word
end
if #stored > 0 then
  redis.call('ZADD', once, unpack(stored))
  local last = redis.call('ZCARD', once) > max and now + DAY - HOUR or now
  redis.call('ZREMRANGEBYSCORE', once, '-inf', string.format('%d', last))
end
return table.concat(words)
