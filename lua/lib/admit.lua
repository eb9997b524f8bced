-- admit: whether a new task may be stored; writes nothing.
--
-- RETURNS
--   '1'  yes
--   '0'  the id is taken
--   '2'  the id is taken by a task with this very message (our own, when a call was sent again)
--   '3'  another task holds the uniqueness lock
local function admit(task, lock, id, msg, ttl)
  if redis.call('EXISTS', task) == 1 then
    local stored = redis.pcall('HGET', task, 'msg')
    return stored == msg and '2' or '0'
  end
  if ttl ~= '0' and redis.call('EXISTS', lock) == 1 then
    -- A lock that names this id is left from a task of this id which is gone: asynq's own leak, or a
    -- lost reply. It is ours to take over.
    return redis.pcall('GET', lock) == id and '1' or '3'
  end
  return '1'
end

-- take_lock: record whose lock it is; only after admit has said yes.
local function take_lock(task, lock, id, ttl)
  if ttl ~= '0' then
    redis.call('SET', lock, id, 'EX', ttl)
    redis.call('HSET', task, 'unique_key', lock)
  end
end
