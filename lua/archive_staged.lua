-- archive_staged: give up on tasks that cannot be aggregated, and keep them for inspection; 1 to 100 per
-- call.
--
-- Transition: aggregating -> archived      Go: none (they go back into their group, again and again)
--
-- KEYS
--   1  set        asynq:{<queue>}:g:<group>:<uuid>   ZSET
--   2  sets       asynq:{<queue>}:aggregation_sets   ZSET
--   3  archived   asynq:{<queue>}:archived           ZSET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  day        UTC day of the counters, YYYY-MM-DD
--   3  expire_at  unix second at which a new day counter expires
--   4  size       how many tasks the set has to have
--   then for each task
--   +1 id         task id
--   +2 expiries   empty, as the next: this ends no run, but is counted as one
--   +3 run        empty
--   +4 lock       name of its lock; empty for none, and for one that stays
--   +5 msg        encoded task message with the error; empty to leave it as it is
--   +6 score      unix time in seconds
--   +7 field      empty
--   +8 value      empty
-- DERIVED
--   the locks, prefix .. 'processed', prefix .. 'failed', and those of the day
-- RETURNS how many tasks the set has then; -1 when it was reclaimed and nothing was written
-- needs: finish holds nth
local set, sets, archived = KEYS[1], KEYS[2], KEYS[3]
local prefix, day, expire_at, size = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

redis.call('ZCARD', archived) -- fails by its type before anything was written
if not holds(sets, set, size) then
  return -1
end
local ids = {}
for n = 1, (#ARGV - 4) / 8 do
  ids[n] = nth(ARGV, 5, 8, n)
end
-- A deletion first: then Redis lets the rest happen when it is out of memory.
redis.call('ZREM', set, unpack(ids))
finish(ids, nil, 'archived', archived, prefix, 5, 8, day, expire_at, 'failed')
local left = redis.call('ZCARD', set)
if left == 0 then
  redis.call('ZREM', sets, set)
end
return left
