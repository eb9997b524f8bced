-- start_followers: make pending what follows tasks that have ended, 1 to 100 per call.
--
-- Transition: scheduled -> pending         Go: none
-- A hint: without it each is due at its fallback. None starts while a worker has the task that it follows, so that the call may come late, or twice.
--
-- KEYS
--   1  pending      asynq:{<queue>}:pending    LIST
--   2  scheduled    asynq:{<queue>}:scheduled  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  now_ns       unix time in nanoseconds
--   then for each task
--   +1 id           id of the task that has ended
--   +2 twin         id of the one that may follow it
-- DERIVED
--   task_prefix .. id, task_prefix .. twin
-- RETURNS how many are pending now
-- needs: make_pending nth
local pending, scheduled = KEYS[1], KEYS[2]
local task_prefix, now_ns = ARGV[1], ARGV[2]

local twins = {}
for n = 1, (#ARGV - 2) / 2 do
  local id, twin = nth(ARGV, 3, 2, n)
  local is_free = redis.pcall('HGET', task_prefix .. id, 'state') ~= 'active'
  local fields = redis.pcall('HMGET', task_prefix .. twin, 'state', 'x_published')
  if is_free and fields[1] == 'scheduled' and fields[2] and redis.call('ZSCORE', scheduled, twin) then
    twins[#twins + 1] = twin
  end
end
if #twins > 0 then
  make_pending('LPUSH', pending, task_prefix, twins, now_ns)
  redis.call('ZREM', scheduled, unpack(twins))
end
return #twins
