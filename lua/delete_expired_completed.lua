-- delete_expired_completed: delete completed tasks whose retention has ended.
--
-- Transition: completed -> (deleted)       Go: deleteExpiredCompletedTasksCmd
--
-- KEYS
--   1  completed    asynq:{<queue>}:completed  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  now          unix time in seconds
--   3  limit        how many to delete per call
-- DERIVED
--   task_prefix .. id
-- RETURNS how many were deleted
local completed, task_prefix, now, limit = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

local expired = redis.call('ZRANGEBYSCORE', completed, '-inf', now, 'LIMIT', 0, limit)
for _, id in ipairs(expired) do
  redis.call('DEL', task_prefix .. id)
  redis.call('ZREM', completed, id)
end
return #expired
