-- done: delete tasks that succeeded, 1 to 100 per call.
--
-- Transition: active -> (deleted)          Go: doneCmd, doneUniqueCmd
-- Differs from Go: fenced by owns (W09); all is checked before anything is written (W53); the list is
-- searched from the side where the id should be and no further than the first hit (W02).
--
-- KEYS
--   1  active         asynq:{<queue>}:active             LIST
--   2  lease          asynq:{<queue>}:lease              ZSET
--   3  processed      asynq:{<queue>}:processed          STRING
--   4  processed_day  asynq:{<queue>}:processed:<day>    STRING
--   then for each task
--   +1 task           asynq:{<queue>}:t:<id>             HASH
--   +2 lock           asynq:{<queue>}:unique:...         STRING; the task key again when there is none;
--                     left out for a single task without one
-- ARGV
--   1  expire_at  unix second at which a new day counter expires
--   then for each task
--   +1 id         task id
--   +2 run        token of the run
--   +3 offset     where the part of the message that can change begins, and
--   +4 tail       that part, as it was taken
--   +5 side       1 to search the active list from its head, -1 from its tail
-- RETURNS one character for each task
--   1  deleted and counted
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
local active, lease, processed, processed_day = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local expire_at = ARGV[1]

-- The lease goes first: removing it is also the check that it was there, and without it nothing has been
-- written. LREM by pcall: where a key of another type stands, the id cannot be in the list, and the task
-- must not wait.
if #KEYS <= 6 then
  local task, id = KEYS[5], ARGV[2]
  local verdict = owns(task, ARGV[3], ARGV[4], ARGV[5])
  if verdict ~= '1' then
    return verdict
  end
  if redis.call('ZREM', lease, id) == 0 then
    return '0'
  end
  redis.pcall('LREM', active, ARGV[6], id)
  if KEYS[6] then
    release(KEYS[6], id)
  end
  redis.call('DEL', task)
  count(processed, processed_day, 1, expire_at)
  return '1'
end

local verdicts, tasks = {}, {}
local arg = 2
for key = 5, #KEYS, 2 do
  local task, id = KEYS[key], ARGV[arg]
  local verdict = owns(task, ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3])
  if verdict == '1' and redis.call('ZREM', lease, id) == 0 then
    verdict = '0'
  end
  if verdict == '1' then
    redis.pcall('LREM', active, ARGV[arg + 4], id)
    if KEYS[key + 1] ~= task then
      release(KEYS[key + 1], id)
    end
    tasks[#tasks + 1] = task
  end
  verdicts[#verdicts + 1] = verdict
  arg = arg + 5
end
if #tasks > 0 then
  redis.call('DEL', unpack(tasks))
  count(processed, processed_day, #tasks, expire_at)
end
return table.concat(verdicts)
