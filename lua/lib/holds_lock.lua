-- holds_lock: whether a uniqueness lock names this task, and is the queue's own: its name begins as those of the queue's keys do,
-- up to the end of the hash tag. A task that somebody has brought here from another queue may name a lock of that one. In a
-- cluster it lies elsewhere, and Redis would refuse the whole call; it ends by itself.
local function holds_lock(lock, id)
  local tag = string.match(KEYS[1], '^[^}]*}')
  return tag and string.sub(lock, 1, #tag) == tag and redis.pcall('GET', lock) == id
end
