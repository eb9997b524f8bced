-- delete_expired_completed: delete completed tasks whose retention has ended.
--
-- Transition: completed -> (deleted)       Go: deleteExpiredCompletedTasksCmd
--
-- KEYS
--   1  completed    asynq:{<queue>}:completed  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  now          unix time in seconds
--   3  limit        how many to delete, at most 100 per call
-- DERIVED
--   task_prefix .. id
-- RETURNS how many were deleted
local completed, task_prefix, now, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local expired = redis.call('ZRANGEBYSCORE', completed, '-inf', now, 'LIMIT', 0, limit)
if #expired > 0 then
  local tasks = {}
  for n = 1, #expired do
    tasks[n] = task_prefix .. expired[n]
  end
  redis.call('DEL', unpack(tasks))
  redis.call('ZREM', completed, unpack(expired))
end
return #expired
