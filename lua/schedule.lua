-- schedule: store new tasks to be started later, 1 to 100 per call.
--
-- Transition: (absent) -> scheduled        Go: scheduleCmd, scheduleUniqueCmd
-- Differs from Go: as enqueue; and a task with a group keeps it, so that it joins the group when its time
-- comes instead of forgetting it (W21). It keeps it in a field of ours: where Go found the field group, its
-- forward would put the task into a group that is not listed (W20), in which nobody looks.
--
-- KEYS
--   1  scheduled  asynq:{<queue>}:scheduled  ZSET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>     HASH
--   +2 lock       asynq:{<queue>}:unique:... STRING; the task key again when there is none
-- ARGV
--   for each task
--   +1 id         task id
--   +2 msg        encoded task message
--   +3 ttl        seconds the lock lives; 0 for no lock
--   +4 at         unix second at which the task is due
--   +5 group      group name; empty for none
-- RETURNS one character for each task, as enqueue
-- needs: can_store_all take_lock
local scheduled = KEYS[1]

local verdicts, keys, args = can_store_all(2, 1, 5)
if #keys > 0 then
  local scores = {}
  for n = 1, #args do
    scores[#scores + 1] = ARGV[args[n] + 3]
    scores[#scores + 1] = ARGV[args[n]]
  end
  redis.call('ZADD', scheduled, unpack(scores))
  for n = 1, #keys do
    local key, arg = keys[n], args[n]
    redis.call('HSET', KEYS[key], 'msg', ARGV[arg + 1], 'state', 'scheduled')
    if ARGV[arg + 4] ~= '' then
      redis.call('HSET', KEYS[key], 'x_group', ARGV[arg + 4])
    end
    take_lock(KEYS[key], KEYS[key + 1], ARGV[arg], ARGV[arg + 2])
  end
end
return table.concat(verdicts)
