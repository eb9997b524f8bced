-- can_store: whether a new task may be stored; writes nothing. ttl is 0 for a task without a lock.
--
-- RETURNS
--   a  yes
--   i  the id is taken
--   s  the id is taken by a task with this very message (our own, when a call was sent again), or its window is open
--   l  another task holds the uniqueness lock
-- needs: window_of
local function can_store(task, id, msg, lock, ttl)
  local holder = ttl ~= '0' and redis.pcall('GET', lock)
  if holder and type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
    redis.call('GET', lock) -- Redis refuses to tell: that is an error
  end
  if redis.call('EXISTS', task) == 1 then
    if redis.pcall('HGET', task, 'msg') == msg then
      return 's'
    end
    -- Go looks at the lock first, and so do its clients.
    return holder and 'l' or 'i'
  end
  if holder and holder == window_of(id) then
    return 's'
  end
  -- A lock that names this id is left from a task of this id which is gone: asynq's own leak, or a lost
  -- reply. It is ours to take over.
  return holder and holder ~= id and 'l' or 'a'
end
