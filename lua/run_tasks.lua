-- run_tasks: make tasks pending now that wait or have ended, 1 to 100 per call.
--
-- Transition: scheduled | retry | archived | completed | aggregating -> pending
-- Go: runTaskCmd, runAllCmd, runAllAggregatingCmd
-- Differs from Go: many tasks take many short calls instead of one long one (W32); pending_since is set,
-- so that latency is shown (W47).
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending  LIST
--   2  groups   asynq:{<queue>}:groups   SET
-- ARGV
--   1  prefix   asynq:{<queue>}:
--   2  from     state in which the tasks were seen; empty: whichever they are in
--   3  now_ns   unix time in nanoseconds
--   then for each task
--   +1 id       task id
-- DERIVED
--   prefix .. 't:' .. id, and the set that the task's state or group names
-- RETURNS one character for each task
--   1  pending
--   0  there is no such task
--   2  a worker has it
--   3  it was pending already
--   4  it is no longer in the state `from`
--   5  it is not where its state says: it is being aggregated, or a tool left it behind
--   Only with 1 was anything written.
-- needs: find_task leave_set set_of write
local pending, groups = KEYS[1], KEYS[2]
local prefix, from, now_ns = ARGV[1], ARGV[2], ARGV[3]

local verdicts = {}
for n = 4, #ARGV do
  local id = ARGV[n]
  local verdict, state, group = find_task(prefix, id, from)
  if verdict == '1' then
    local set = set_of(prefix, state, group)
    if state == 'pending' then
      verdict = '3'
    elseif not redis.call('ZSCORE', set, id) then
      verdict = '5'
    else
      write('LPUSH', pending, id)
      leave_set(set, id, groups, group)
      redis.call('HSET', prefix .. 't:' .. id, 'state', 'pending', 'pending_since', now_ns)
    end
  end
  verdicts[#verdicts + 1] = verdict
end
return table.concat(verdicts)
