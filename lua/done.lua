-- done: delete tasks that succeeded, 1 to 100 per call.
--
-- Transition: active -> (deleted)          Go: doneCmd, doneUniqueCmd
-- Differs from Go: fenced by owns (W09); all is checked before anything is written (W53); the list is
-- not searched to its end for each id (W02).
--
-- KEYS
--   1  active         asynq:{<queue>}:active             LIST
--   2  lease          asynq:{<queue>}:lease              ZSET
--   3  processed      asynq:{<queue>}:processed          STRING
--   4  processed_day  asynq:{<queue>}:processed:<day>    STRING
--   then for each task
--   +1 task           asynq:{<queue>}:t:<id>             HASH
-- ARGV
--   1  expire_at  unix second at which a new day counter expires
--   then for each task
--   +1 id         task id
--   +2 expiries   lease expiries the worker has set; several are in blanks: " a b "
--   +3 run        token of the run, when the call may have been sent before; empty otherwise
--   +4 lock       name of its lock; empty for none
--   +5 side       1 or -1: the end of the active list to search first; for a single task only
-- DERIVED
--   the locks
-- RETURNS one character for each task
--   1  deleted and counted
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
-- needs: count leases owns release_lock unlist unlist_one
local active, lease, processed, processed_day = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local expire_at = ARGV[1]

if #KEYS == 5 then
  local task, id = KEYS[5], ARGV[2]
  local verdict = owns(redis.call('ZSCORE', lease, id), task, ARGV[3], ARGV[4])
  if verdict == '1' then
    redis.call('ZREM', lease, id)
    unlist_one(active, ARGV[6], id)
    if ARGV[5] ~= '' then
      release_lock(ARGV[5], id)
    end
    redis.call('DEL', task)
    count(processed, processed_day, 1, expire_at)
  end
  return verdict
end

local asked, expiries = leases(lease, 2, 4)
local verdicts, ids, tasks, seen = {}, {}, {}, {}
for n = 1, #asked do
  local arg, task, id = 4 * n - 2, KEYS[4 + n], asked[n]
  local verdict = seen[id] and '2' or owns(expiries[n], task, ARGV[arg + 1], ARGV[arg + 2])
  if verdict == '1' then
    seen[id] = true
    ids[#ids + 1] = id
    tasks[#tasks + 1] = task
    if ARGV[arg + 3] ~= '' then
      release_lock(ARGV[arg + 3], id)
    end
  end
  verdicts[n] = verdict
end
if #ids > 0 then
  redis.call('ZREM', lease, unpack(ids))
  unlist(active, ids)
  redis.call('DEL', unpack(tasks))
  count(processed, processed_day, #ids, expire_at)
end
return table.concat(verdicts)
