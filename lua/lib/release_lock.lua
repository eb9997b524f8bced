-- release_lock: free a uniqueness lock if it still names this task, and is the queue's own.
-- needs: holds_lock
local function release_lock(lock, id)
  if holds_lock(lock, id) then
    redis.call('DEL', lock)
  end
end
