-- requeue: put an active task back in front, to be taken next, without spending a retry.
--
-- Transition: active -> pending            Go: requeueCmd
-- Differs from Go: fenced by owns (W09); pending_since is set, so that latency is shown (W47).
--
-- KEYS
--   1  active   asynq:{<queue>}:active   LIST
--   2  lease    asynq:{<queue>}:lease    ZSET
--   3  pending  asynq:{<queue>}:pending  LIST
--   4  task     asynq:{<queue>}:t:<id>   HASH
-- ARGV
--   1  id       task id
--   2  expiries lease expiries the worker has set; several are in blanks: " a b "
--   3  run      token of the run
--   4  side     1 or -1: the end of the active list to search first
--   5  now_ns   unix time in nanoseconds
-- RETURNS
--   1  pending
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
-- needs: owns unlist_one write
local active, lease, pending, task = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, expiries, run, side, now_ns = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local verdict = owns(redis.call('ZSCORE', lease, id), task, expiries, run)
if verdict ~= '1' then
  return verdict
end
write('RPUSH', pending, id)
unlist_one(active, side, id)
redis.call('ZREM', lease, id)
redis.call('HSET', task, 'state', 'pending', 'pending_since', now_ns)
redis.call('HDEL', task, 'owner')
return '1'
