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
-- ARGV
--   1  expire_at   unix second at which a new day counter expires
--   then for each task
--   +1 id          task id
--   +2 expiries    lease expiries the worker has set; several are in blanks: " a b "
--   +3 run         token of the run, when the call may have been sent before; empty otherwise
--   +4 lock        name of its lock; empty for none
--   +5 msg         encoded task message with the time of completion
--   +6 expires     unix second at which the retention ends
--   +7 has_result  1 if a result is to be stored
--   +8 result      the result
-- DERIVED
--   the locks
-- RETURNS one character for each task
--   1  completed and counted
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
--   4  it is completed with this very message already; nothing was written
-- needs: count leases owns release_lock unlist
local active, lease, processed, processed_day, completed = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local expire_at = ARGV[1]

-- A set of another type is an error before anything was written.
redis.call('ZCARD', completed)

local asked, expiries = leases(lease, 2, 8)
local verdicts, ids, scores, seen = {}, {}, {}, {}
for n = 1, #asked do
  local arg, task, id = 8 * n - 6, KEYS[5 + n], asked[n]
  local lock, msg = ARGV[arg + 3], ARGV[arg + 4]
  local verdict = seen[id] and '0' or owns(expiries[n], task, ARGV[arg + 1], ARGV[arg + 2])
  if verdict == '1' then
    -- A deletion is the first write: then Redis lets the others happen when it is out of memory.
    local cleared = redis.pcall('HDEL', task, 'owner', 'x_crashes')
    if type(cleared) == 'table' then
      if not string.find(cleared.err, 'WRONGTYPE', 1, true) then
        return cleared -- Redis refuses to write; it does so at the first write or not at all
      end
      verdict = '0' -- a key of another type stands where the task was
    end
  end
  if verdict == '1' then
    redis.call('HSET', task, 'msg', msg, 'state', 'completed')
    if ARGV[arg + 6] == '1' then
      redis.call('HSET', task, 'result', ARGV[arg + 7])
    end
    if lock ~= '' then
      release_lock(lock, id)
    end
    seen[id] = true
    ids[#ids + 1] = id
    scores[#scores + 1] = ARGV[arg + 5]
    scores[#scores + 1] = id
  elseif verdict == '0' and redis.pcall('HGET', task, 'msg') == msg then
    verdict = '4'
  end
  verdicts[n] = verdict
end
if #ids > 0 then
  redis.call('ZADD', completed, unpack(scores))
  redis.call('ZREM', lease, unpack(ids))
  unlist(active, ids)
  count(processed, processed_day, #ids, expire_at)
end
return table.concat(verdicts)
