-- delete_aggregated: delete tasks that were aggregated, 1 to 100 per call.
--
-- Transition: aggregating -> (deleted)     Go: deleteAggregationSetCmd
-- Their set was aggregated before; it was too large to be deleted in the same step.
--
-- KEYS
--   1  remains      asynq:{<queue>}:x:aggregated:<uuid>  ZSET
--   2  aggregated   asynq:{<queue>}:x:aggregated         SET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   then for each task
--   +1 id           task id
--   +2 lock         name of its lock; empty for none
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS how many tasks are left
-- needs: delete_task
local remains, aggregated, task_prefix = KEYS[1], KEYS[2], ARGV[1]

-- Only what is still in the set: whoever has deleted a task may have enqueued another under its id.
local ids = {}
for n = 2, #ARGV, 2 do
  if redis.call('ZREM', remains, ARGV[n]) == 1 then
    ids[#ids + 1] = n
  end
end
for _, n in ipairs(ids) do
  delete_task(task_prefix, ARGV[n], ARGV[n + 1])
end
local left = redis.call('ZCARD', remains)
if left == 0 then
  redis.call('SREM', aggregated, remains)
end
return left
