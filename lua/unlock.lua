-- unlock: free the uniqueness lock of a task that is about to be worked, if it still names the task.
--
-- Transition: none; active                 Go: none
--
-- KEYS
--   1  lock  asynq:{<queue>}:unique:...  STRING
-- ARGV
--   1  id    task id
-- RETURNS 1 if it was the task's, else 0
local lock, id = KEYS[1], ARGV[1]

if redis.call('GET', lock) ~= id then
  return 0
end
return redis.call('DEL', lock)
