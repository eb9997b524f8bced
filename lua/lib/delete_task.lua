-- delete_task: delete a task's hash, and the lock that it owns. A key of another type is left alone.
--
-- lock is the lock's name, where the caller knows it ('' for none). Else the hash says it.
-- needs: lock_of release_lock
local function delete_task(task_prefix, id, lock)
  local task = task_prefix .. id
  lock = lock or lock_of(task)
  if not lock then
    return
  end
  redis.call('DEL', task)
  if lock ~= '' then
    release_lock(lock, id)
  end
end
