-- requeue: make active tasks pending again, in front, to be taken next, without spending a retry; 1 to 100 per call.
--
-- Transition: active -> pending            Go: requeueCmd
-- Differs from Go: fenced by owns (W09); pending_since is set, so that latency is shown (W47).
--
-- KEYS
--   1  active    asynq:{<queue>}:active   LIST
--   2  lease     asynq:{<queue>}:lease    ZSET
--   3  pending   asynq:{<queue>}:pending  LIST
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix    asynq:{<queue>}:
--   2  side      of a lone task 1 or -1: the end of the active list to search first; empty for several
--   3  now_ns    unix time in nanoseconds
--   then for each task
--   +1 id        task id
--   +2 expiries  lease expiries the worker has set; several stand between spaces: " a b "
--   +3 run       token of the run
-- RETURNS one letter for each task
--   a  pending
--   o  the run belongs to somebody else by now; nothing was written
--   m  the task is gone; nothing was written
-- needs: leave_active make_pending
local active, lease, pending = KEYS[1], KEYS[2], KEYS[3]
local prefix, side, now_ns = ARGV[1], ARGV[2], ARGV[3]

redis.call('LLEN', pending) -- fails by its type before anything was written
local words, ids = leave_active(active, lease, side, 4, 3, nil, false, 'owner')
if ids then
  make_pending('RPUSH', pending, prefix .. 't:', ids, now_ns)
end
return words
