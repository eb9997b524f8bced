-- add_to_group: store new tasks and let them wait in their group, 1 to 100 per call.
--
-- Transition: (absent) -> aggregating      Go: addToGroupCmd, addToGroupUniqueCmd
-- Differs from Go: as enqueue; and the lock's name is written into the hash, so that deleting the task
-- frees it (W23).
--
-- KEYS
--   1  place        asynq:{<queue>}:g:<group>   ZSET
--   2  groups       asynq:{<queue>}:groups      SET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   then for each task
--   +1 id           task id
--   +2 msg          encoded task message
--   +3 lock         name of its lock; empty for none
--   +4 ttl          seconds the lock lives; 0 for no lock, below 0 for a window
--   +5 score        unix time in seconds
--   +6 group        group name, the same for all
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS one letter for each task, as enqueue
-- needs: store_all
local place, groups, task_prefix = KEYS[1], KEYS[2], ARGV[1]

return store_all('aggregating', place, groups, task_prefix, 2, 6)
