-- enqueue: store new tasks and make them pending, 1 to 100 per call.
--
-- Transition: (absent) -> pending          Go: enqueueCmd, enqueueUniqueCmd
-- Differs from Go: the uniqueness lock is taken only when the id is free too, so that an id conflict
-- leaves no lock behind (W22); a message sent twice is told from a conflict (W10).
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
--   +4 ttl      seconds the lock lives; 0 for no lock, below 0 for a window
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS one letter for each task
--   a  stored
--   i  the id is taken; nothing was written
--   s  the id is taken by this very message; nothing was written
--   l  another task holds the lock; nothing was written
-- needs: can_store store
local pending = KEYS[1]
local task_prefix, now_ns, each = ARGV[1], ARGV[2], tonumber(ARGV[3])

-- A lone task takes Redis 50,000 instructions here, and 61,000 by store_all (7.0, callgrind).
if #ARGV == 3 + each then
  local id, msg, lock, ttl = unpack(ARGV, 4)
  local task = task_prefix .. id
  local word = can_store(task, id, msg, lock, ttl or '0')
  if word == 'a' then
    store('pending', pending, task, id, msg, now_ns, lock, ttl)
  end
  return word
end
-- needs: store_all
return store_all('pending', pending, nil, task_prefix, 4, each, now_ns)
