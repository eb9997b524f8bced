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
-- needs: delete_task nth
local remains, aggregated, task_prefix = KEYS[1], KEYS[2], ARGV[1]

-- Only what is still in the set: whoever has deleted a task may have enqueued another under its id.
local gone = {}
for n = 1, (#ARGV - 1) / 2 do
  local id = nth(ARGV, 2, 2, n)
  gone[n] = redis.call('ZREM', remains, id) == 1
end
for n = 1, #gone do
  local id, lock = nth(ARGV, 2, 2, n)
  if gone[n] then
    delete_task(task_prefix, id, lock)
  end
end
local left = redis.call('ZCARD', remains)
if left == 0 then
  redis.call('SREM', aggregated, remains)
end
return left
