-- release: free a uniqueness lock if it still names this task.
local function release(lock, id)
  if redis.pcall('GET', lock) == id then
    redis.call('DEL', lock)
  end
end
