-- schedule: store new tasks to be started later, 1 to 100 per call.
--
-- Transition: (absent) -> scheduled        Go: scheduleCmd, scheduleUniqueCmd
-- Differs from Go: as enqueue; and a task with a group keeps it, so that it joins the group when its time
-- comes instead of forgetting it (W21).
--
-- KEYS
--   1  scheduled    asynq:{<queue>}:scheduled  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   then for each task
--   +1 id           task id
--   +2 msg          encoded task message
--   +3 lock         name of its lock; empty for none
--   +4 ttl          seconds the lock lives; 0 for no lock, below 0 for a window
--   +5 score        unix second at which the task is due
--   +6 group        group name; empty for none
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS one letter for each task, as enqueue
-- needs: store_all
local scheduled, task_prefix = KEYS[1], ARGV[1]

return store_all('scheduled', scheduled, nil, task_prefix, 2, 6)
