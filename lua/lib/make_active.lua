-- make_active: make tasks active under a lease; the caller takes them out of the pending list.
--
-- Each of the first two steps can fail by the type of its key; the second then takes back the first.
-- RETURNS the error, having written nothing; nil when it is done.
-- needs: write
local function make_active(active, lease, task_prefix, ids, expires, run)
  if #ids == 0 then
    return nil
  end
  local leases = {}
  for n = 1, #ids do
    leases[2 * n - 1] = expires
    leases[2 * n] = ids[n]
  end
  write('ZADD', lease, unpack(leases))
  local pushed = redis.pcall('LPUSH', active, unpack(ids))
  if type(pushed) == 'table' then
    redis.call('ZREM', lease, unpack(ids))
    return pushed
  end
  for n = 1, #ids do
    local task = task_prefix .. ids[n]
    redis.call('HSET', task, 'state', 'active', 'owner', run)
    redis.call('HDEL', task, 'pending_since')
  end
  return nil
end
