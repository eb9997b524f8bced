-- complete: keep tasks that succeeded, with their results, until their retention ends; 1 to 100 per call.
--
-- Transition: active -> completed          Go: markAsCompleteCmd, markAsCompleteUniqueCmd
-- Differs from Go: as done; and the result is stored in the same step.
--
-- KEYS
--   1  active         asynq:{<queue>}:active             LIST
--   2  lease          asynq:{<queue>}:lease              ZSET
--   3  processed      asynq:{<queue>}:processed          STRING
--   4  processed_day  asynq:{<queue>}:processed:<day>    STRING
--   5  completed      asynq:{<queue>}:completed          ZSET
--   then for each task
--   +1 task           asynq:{<queue>}:t:<id>             HASH
--   +2 lock           asynq:{<queue>}:unique:...         STRING; the task key again when there is none
-- ARGV
--   1  expire_at   unix second at which a new day counter expires
--   then for each task
--   +1 id          task id
--   +2 run         token of the run
--   +3 offset      where the part of the message that can change begins, and
--   +4 tail        that part, as it was taken
--   +5 side        1 to search the active list from its head, -1 from its tail
--   +6 msg         encoded task message with the time of completion
--   +7 expires     unix second at which the retention ends
--   +8 has_result  1 if a result is to be stored
--   +9 result      the result
-- RETURNS one character for each task
--   1  completed and counted
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
--   4  it is completed with this very message already; nothing was written
local active, lease, processed, processed_day, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local expire_at = ARGV[1]

local verdicts, ids = {}, {}
local arg = 2
for key = 6, #KEYS, 2 do
  local task, id, msg = KEYS[key], ARGV[arg], ARGV[arg + 5]
  local verdict = owns(task, ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3])
  if verdict == '1' and not redis.call('ZSCORE', lease, id) then
    verdict = '0'
  elseif verdict == '0' and redis.pcall('HGET', task, 'msg') == msg then
    verdict = '4'
  end
  if verdict == '1' then
    redis.call('ZADD', completed, ARGV[arg + 6], id)
    redis.pcall('LREM', active, ARGV[arg + 4], id)
    redis.call('HSET', task, 'msg', msg, 'state', 'completed')
    redis.call('HDEL', task, 'owner')
    if ARGV[arg + 7] == '1' then
      redis.call('HSET', task, 'result', ARGV[arg + 8])
    end
    ids[#ids + 1] = id
    if KEYS[key + 1] ~= task then
      release(KEYS[key + 1], id)
    end
  end
  verdicts[#verdicts + 1] = verdict
  arg = arg + 9
end
if #ids > 0 then
  redis.call('ZREM', lease, unpack(ids))
  count(processed, processed_day, #ids, expire_at)
end
return table.concat(verdicts)
