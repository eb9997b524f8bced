-- can_store: whether a new task may be stored; writes nothing.
--
-- RETURNS
--   '1'  yes
--   '0'  the id is taken
--   '2'  the id is taken by a task with this very message (our own, when a call was sent again)
--   '3'  another task holds the uniqueness lock
local function can_store(task, lock, id, msg, ttl)
  local holder = ttl ~= '0' and redis.pcall('GET', lock)
  if redis.call('EXISTS', task) == 1 then
    if redis.pcall('HGET', task, 'msg') == msg then
      return '2'
    end
    -- Go looks at the lock first, and so do its clients.
    return holder and '3' or '0'
  end
  -- A lock that names this id is left from a task of this id which is gone: asynq's own leak, or a lost
  -- reply. It is ours to take over.
  return holder and holder ~= id and '3' or '1'
end
