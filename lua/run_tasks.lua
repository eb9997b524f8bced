-- run_tasks: make tasks pending now that wait or have ended, 1 to 100 per call.
--
-- Transition: scheduled | retry | archived | completed | aggregating -> pending
-- Go: runTaskCmd, runAllCmd, runAllAggregatingCmd
-- Differs from Go: many tasks take many short calls instead of one long one (W32); pending_since is set,
-- so that latency is shown (W47); one that has completed forgets its checkpoint and begins anew.
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
-- RETURNS one letter for each task
--   a  pending
--   m  there is no such task
--   w  a worker has it
--   t  it was pending already
--   c  it is no longer in the state `from`
--   p  it is not where its state says: it is being aggregated, or a tool left it behind
--   Only with a was anything written.
-- needs: find_task leave_set make_pending set_of
local pending, groups = KEYS[1], KEYS[2]
local prefix, from, now_ns = ARGV[1], ARGV[2], ARGV[3]

local words = {}
for n, id in ipairs({ unpack(ARGV, 4) }) do
  local word, state, group = find_task(prefix, id, from)
  if word == 'a' then
    local set = set_of(prefix, state, group)
    if state == 'pending' then
      word = 't'
    elseif not redis.call('ZSCORE', set, id) then
      word = 'p'
    else
      make_pending('LPUSH', pending, prefix .. 't:', id, now_ns)
      leave_set(set, id, groups, group)
      if state == 'completed' then
        redis.call('HDEL', prefix .. 't:' .. id, 'x_cursor', 'x_progress') -- it has nothing left to go on with
      end
    end
  end
  words[n] = word
end
return table.concat(words)
