-- make_pending: a task (ids is its id) or tasks (a list of ids) become pending: with LPUSH behind those that are, with RPUSH
-- before them.
-- needs: write
local function make_pending(push, pending, task_prefix, ids, now_ns)
  if type(ids) == 'string' then
    ids = { ids }
  end
  write(push, pending, unpack(ids))
  for n = 1, #ids do
    redis.call('HSET', task_prefix .. ids[n], 'state', 'pending', 'pending_since', now_ns)
  end
end
