-- recover: take tasks from workers that went silent; they wait for another attempt, or are archived. 1 to 100 per
-- call.
--
-- Transition: active -> retry, archived    Go: retryCmd and archiveCmd, for each task
-- Differs from Go: fenced by the lease expiry that the recoverer saw (W33), each task by itself; the active list is
-- searched once for all of them; old archived tasks are trimmed as in archive.
--
-- KEYS
--   1  active         asynq:{<queue>}:active                LIST
--   2  lease          asynq:{<queue>}:lease                 ZSET
--   3  place          asynq:{<queue>}:retry or :archived    ZSET
--   4  processed      asynq:{<queue>}:processed             STRING
--   5  processed_day  asynq:{<queue>}:processed:<day>       STRING
--   6  failed         asynq:{<queue>}:failed                STRING
--   7  failed_day     asynq:{<queue>}:failed:<day>          STRING
--   then for each task
--   +1 task           asynq:{<queue>}:t:<id>                HASH
-- ARGV
--   1  state        retry or archived
--   2  at           how far from the tail of the active list they were seen
--   3  expire_at    unix second at which a new day counter expires
--   4  cutoff       archived tasks of this second or earlier are too old
--   5  max          how many archived tasks to keep
--   6  task_prefix  asynq:{<queue>}:t:
--   then for each task
--   +1 id           task id
--   +2 expiry       lease expiry that the recoverer saw
--   +3 msg          encoded task message with the error
--   +4 score        its score in place
--   +5 crashes      new value of x_crashes; empty for none
-- DERIVED
--   task_prefix .. id of trimmed tasks, and the locks they own
-- RETURNS one character for each task
--   1  it is where it should be, and counted as a failure
--   0  it is not active with this lease any more; nothing was written
--   2  the task is gone; nothing was written
-- needs: count_failures is_wrong_type leases owns trim unlist_near
local active, lease, place = KEYS[1], KEYS[2], KEYS[3]
local state, at, expire_at = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local cutoff, max, task_prefix = tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]

-- A set of another type is an error before anything was written.
redis.call('ZCARD', place)

local asked, expiries = leases(lease, 7, 5)
local verdicts, ids, scores, chosen, seen = {}, {}, {}, {}, {}
for n = 1, #asked do
  local arg, id = 5 * n + 2, asked[n]
  local verdict = seen[id] and '0' or owns(expiries[n], KEYS[7 + n], ARGV[arg + 1], '')
  if verdict == '1' then
    local is = redis.pcall('HGET', KEYS[7 + n], 'state')
    if is_wrong_type(is) or is ~= 'active' then
      verdict = is and '0' or '2'
    end
  end
  if verdict == '1' then
    seen[id] = true
    ids[#ids + 1] = id
    scores[#scores + 1] = ARGV[arg + 3]
    scores[#scores + 1] = id
    chosen[#chosen + 1] = n
  end
  verdicts[n] = verdict
end
if #ids == 0 then
  return table.concat(verdicts)
end
-- What deletes comes first: a Redis without memory does the rest then, too.
redis.call('ZREM', lease, unpack(ids))
redis.call('ZADD', place, unpack(scores))
for _, n in ipairs(chosen) do
  local task, arg = KEYS[7 + n], 5 * n + 2
  redis.call('HDEL', task, 'owner', 'x_crashes')
  if ARGV[arg + 4] == '' then
    redis.call('HSET', task, 'msg', ARGV[arg + 2], 'state', state)
  else
    redis.call('HSET', task, 'msg', ARGV[arg + 2], 'state', state, 'x_crashes', ARGV[arg + 4])
  end
end
unlist_near(active, ids, at)
count_failures(KEYS[4], KEYS[5], KEYS[6], KEYS[7], #ids, expire_at)
if state == 'archived' then
  trim(place, task_prefix, cutoff, max, 25, seen)
end
return table.concat(verdicts)
