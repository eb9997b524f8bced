-- begin_removal: stop a queue that is to be removed, unless tasks of it are being worked on.
--
-- Transition: none; delete_tasks, sweep and finish_removal follow
-- Go: the first part of removeQueueForceCmd
-- Differs from Go: the queue is paused, so that no worker takes a task between the steps; tasks that are being
-- aggregated count as worked on.
--
-- KEYS
--   1  active    asynq:{<queue>}:active            LIST
--   2  sets      asynq:{<queue>}:aggregation_sets  ZSET
--   3  paused    asynq:{<queue>}:paused            STRING
--   4  removing  asynq:{<queue>}:x:removing        STRING
-- ARGV
--   1  now       unix time in seconds
-- DERIVED
--   the members of sets, at most 100
-- RETURNS how many tasks are being worked on; 0 when there are none, and the queue is stopped
-- needs: write
local active, sets, paused, removing, now = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]

local busy = redis.call('LLEN', active)
for _, set in ipairs(redis.call('ZRANGEBYSCORE', sets, '(' .. now, '+inf', 'LIMIT', 0, 100)) do
  busy = busy + redis.call('ZCARD', set)
end
if busy == 0 then
  write('SETNX', paused, now)
  redis.call('SET', removing, now)
end
return busy
