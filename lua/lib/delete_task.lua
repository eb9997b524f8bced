-- delete_task: delete an aggregated task, and its lock if it owns it. The name of the lock (empty for none)
-- comes from the message, because Go leaves it out of the hash of a task that joins a group.
local function delete_task(task_prefix, id, lock)
  if lock ~= '' then
    release(lock, id)
  end
  redis.call('DEL', task_prefix .. id)
end
