-- requeue_run: put back the tasks of a dequeue whose reply was lost on the way.
--
-- Transition: active -> pending            Go: none (they wait for their lease and lose a retry, W10)
-- The tasks of one dequeue stand together near the head of the list, so a bounded look finds them.
--
-- KEYS
--   1  active       asynq:{<queue>}:active   LIST
--   2  lease        asynq:{<queue>}:lease    ZSET
--   3  pending      asynq:{<queue>}:pending  LIST
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  run          token that the lost dequeue would have given
--   3  expires      lease expiry that it would have set; a task that has another is somebody else's
--   4  now_ns       unix time in nanoseconds
--   5  limit        how many active ids to look at
-- DERIVED
--   task_prefix .. id
-- RETURNS how many were put back
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, run, expires, now_ns, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

local mine = {}
for _, id in ipairs(redis.call('LRANGE', active, 0, limit - 1)) do
  local owner = redis.pcall('HGET', task_prefix .. id, 'owner')
  -- Asking for the lease is also the check that its key has the right type.
  if owner == run and redis.call('ZSCORE', lease, id) == expires then
    mine[#mine + 1] = id
  end
end
-- Newest first, so that the oldest ends at the tail and is taken next, as before.
for _, id in ipairs(mine) do
  redis.call('RPUSH', pending, id)
  redis.call('LREM', active, 1, id)
  redis.call('ZREM', lease, id)
  redis.call('HSET', task_prefix .. id, 'state', 'pending', 'pending_since', now_ns)
  redis.call('HDEL', task_prefix .. id, 'owner')
end
return #mine
