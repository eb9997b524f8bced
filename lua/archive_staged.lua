-- archive_staged: give up on tasks that cannot be aggregated, and keep them for inspection; 1 to 100 per
-- call.
--
-- Transition: aggregating -> archived      Go: none (they go back into their group, again and again)
--
-- KEYS
--   1  set            asynq:{<queue>}:g:<group>:<uuid>   ZSET
--   2  sets           asynq:{<queue>}:aggregation_sets   ZSET
--   3  archived       asynq:{<queue>}:archived           ZSET
--   4  processed      asynq:{<queue>}:processed          STRING
--   5  processed_day  asynq:{<queue>}:processed:<day>    STRING
--   6  failed         asynq:{<queue>}:failed             STRING
--   7  failed_day     asynq:{<queue>}:failed:<day>       STRING
-- ARGV
--   1  count        how many tasks the set has to have
--   2  now          unix time in seconds
--   3  expire_at    unix second at which a new day counter expires
--   4  task_prefix  asynq:{<queue>}:t:
--   then for each task
--   +1 id           task id
--   +2 msg          encoded task message with the error; empty to leave it as it is
-- DERIVED
--   task_prefix .. id
-- RETURNS how many tasks the set has then; -1 when it was reclaimed and nothing was written
-- needs: count_failures holds write
local set, sets, archived = KEYS[1], KEYS[2], KEYS[3]
local count, now, expire_at, task_prefix = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

if not holds(sets, set, count) then
  return -1
end
for n = 5, #ARGV, 2 do
  local id, msg = ARGV[n], ARGV[n + 1]
  write('ZADD', archived, now, id)
  redis.call('ZREM', set, id)
  redis.call('HSET', task_prefix .. id, 'state', 'archived')
  if msg ~= '' then
    redis.call('HSET', task_prefix .. id, 'msg', msg)
  end
  count_failures(KEYS[4], KEYS[5], KEYS[6], KEYS[7], 1, expire_at)
end
local left = redis.call('ZCARD', set)
if left == 0 then
  redis.call('ZREM', sets, set)
end
return left
