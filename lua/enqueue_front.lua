-- enqueue_front: store new tasks and make them pending in front of all others, so that the last of them is taken next; 1 to 100 per call.
--
-- Transition: (absent) -> pending          Go: none; a take, also Go's, begins at the right end of the list
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending  LIST
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  now_ns       unix time in nanoseconds
--   3  each         how many arguments each task has: 2, or 4 if any of them has a lock
--   then for each task
--   +1 id       task id
--   +2 msg      encoded task message
--   +3 lock     name of its lock; empty for none
--   +4 ttl      seconds the lock lives; 0 for no lock
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS one letter for each task
--   a  stored
--   i  the id is taken; nothing was written
--   s  the id is taken by this very message; nothing was written
--   l  another task holds the lock; nothing was written
-- needs: store_all
local pending = KEYS[1]
local task_prefix, now_ns, each = ARGV[1], ARGV[2], tonumber(ARGV[3])

return store_all('pending', pending, nil, task_prefix, 4, each, now_ns, 'RPUSH')
