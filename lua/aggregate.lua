-- aggregate: store the task that a set has become, and take the set away; one step, so that nobody can
-- aggregate it again.
--
-- Transition: aggregating -> (deleted), and (absent) -> pending | scheduled | aggregating
-- Go: an enqueue, and later deleteAggregationSetCmd (W24)
-- Differs from Go: one step; locks that the tasks own are released (W23); refused when the set was
-- reclaimed. Of a set with more than 100 tasks only the name is taken away; delete_aggregated does the
-- rest.
--
-- KEYS
--   1  set          asynq:{<queue>}:g:<group>:<uuid>   ZSET
--   2  sets         asynq:{<queue>}:aggregation_sets   ZSET
--   3  place        asynq:{<queue>}:pending LIST, :scheduled ZSET or :g:<group> ZSET
--   4  groups       asynq:{<queue>}:groups             SET
--   5  aggregated   asynq:{<queue>}:x:aggregated       SET of the names of sets that wait for their deletion
--   6  remains      asynq:{<queue>}:x:aggregated:<uuid>  ZSET: the set, from now on, if it has more tasks
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  size         how many tasks the set has to have
--   3  state        state of the new task; empty when there is none to store
--   4  new_id       its id
--   5  msg          its encoded message
--   6  new_lock     name of its lock; empty for none
--   7  ttl          seconds its lock lives; 0 for no lock, below 0 for a window
--   8  at           scheduled: when it is due, aggregating: now, both unix seconds; pending: now in nanoseconds
--   9  group        the group it belongs to; empty for none
--   then for each task of the set, if there are at most 100
--   +1 id           task id
--   +2 lock         name of its lock; empty for none
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS one letter
--   a  done
--   i  the id is taken; nothing was written
--   s  the task is stored already with this very message, and the set is gone: the call was sent again
--   l  another task holds the lock; nothing was written
--   c  the set was reclaimed; nothing was written
-- needs: can_store delete_task holds nth store
local set, sets, place, groups, aggregated, remains = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local task_prefix, size, state, new_id, msg = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local new_lock, ttl, at, group = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local task = task_prefix .. new_id

if not holds(sets, set, size) then
  local again = state ~= '' and redis.pcall('HGET', task, 'msg') == msg
  return again and 's' or 'c'
end
local large = tonumber(size) > 100
if state ~= '' then
  local word = can_store(task, new_id, msg, new_lock, ttl)
  -- A lock of one of these tasks is released in this very step.
  if word == 'l' and redis.call('EXISTS', task) == 0 and redis.call('ZSCORE', set, redis.call('GET', new_lock)) then
    word = 'a'
  end
  if word ~= 'a' then
    return word == 's' and 'i' or word
  end
end
redis.call('ZREMRANGEBYRANK', sets, 1, 0) -- of nothing: see lib/write.lua; an aggregation frees memory
-- What can fail comes first. A name without a set is harmless.
if large then
  redis.call('SADD', aggregated, remains)
end
if state ~= '' then
  store(state, place, task, new_id, msg, at, new_lock, ttl, group, state == 'aggregating' and groups)
end
redis.call('ZREM', sets, set)
if large then
  redis.call('RENAME', set, remains)
else
  for n = 1, (#ARGV - 9) / 2 do
    local id, lock = nth(ARGV, 10, 2, n)
    delete_task(task_prefix, id, lock)
  end
  redis.call('DEL', set)
end
return 'a'
