-- requeue_run: requeue the tasks of a dequeue whose reply was lost on the way.
--
-- Transition: active -> pending            Go: none (they wait for their lease and lose a retry, W10)
-- All tasks of one dequeue have the same lease expiry, and few others do, so that the leases find them
-- however many tasks are active.
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
--   5  limit        how many leases of this expiry to look at
--   6  skip         how many of them to leave out
-- DERIVED
--   task_prefix .. id
-- RETURNS how many leases were looked at, and how many tasks were requeued
-- needs: is_wrong_type make_pending remove_active
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, run, expires, now_ns, limit, skip = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local leased = redis.call('ZRANGEBYSCORE', lease, expires, expires, 'LIMIT', skip, limit)
local mine, place = {}, {}
for _, id in ipairs(leased) do
  local owner = redis.pcall('HGET', task_prefix .. id, 'owner')
  if not is_wrong_type(owner) and owner == run then
    -- Asking for the place is also the check that the key has the right type.
    place[id] = redis.call('LPOS', active, id) or -1
    mine[#mine + 1] = id
  end
end
-- Newest first, so that the oldest ends at the tail and is taken next, as before.
table.sort(mine, function(a, b)
  return place[a] < place[b]
end)
if #mine > 0 then
  make_pending('RPUSH', pending, task_prefix, mine, now_ns)
  remove_active(active, lease, mine)
  for n = 1, #mine do
    redis.call('HDEL', task_prefix .. mine[n], 'owner')
  end
end
return { #leased, #mine }
