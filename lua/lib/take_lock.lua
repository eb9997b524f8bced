-- take_lock: record whose lock it is; only after can_store has said yes.
local function take_lock(task, lock, id, ttl)
  if ttl ~= '0' then
    redis.call('SET', lock, id, 'EX', ttl)
    redis.call('HSET', task, 'unique_key', lock)
  end
end
