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
--   3  task         asynq:{<queue>}:t:<id>             HASH; the set again when there is no task to store
--   4  lock         asynq:{<queue>}:unique:...         STRING; the task key again when there is none
--   5  target       asynq:{<queue>}:pending LIST, :scheduled ZSET or :g:<group> ZSET
--   6  groups       asynq:{<queue>}:groups             SET
--   7  aggregated   asynq:{<queue>}:x:aggregated       SET of the names of sets that wait for their deletion
--   8  remains      asynq:{<queue>}:x:aggregated:<uuid>  ZSET: the set, from now on, if it has more tasks
-- ARGV
--   1  count        how many tasks the set has to have
--   2  state        state of the new task; empty when there is none to store
--   3  id           its id
--   4  msg          its encoded message
--   5  ttl          seconds its lock lives; 0 for no lock
--   6  at           scheduled: when it is due, aggregating: now, both unix seconds; pending: now in nanoseconds
--   7  group        the group it belongs to; empty for none
--   8  task_prefix  asynq:{<queue>}:t:
--   then for each task of the set, if there are at most 100
--   +1 id           task id
--   +2 lock         name of its lock; empty for none
-- DERIVED
--   task_prefix .. id, and the locks
-- RETURNS
--   1  done
--   0  the id is taken; nothing was written
--   2  the task is stored already with this very message, and the set is gone: the call was sent again
--   3  another task holds the lock; nothing was written
--   4  the set was reclaimed; nothing was written
-- needs: can_store delete_task holds take_lock write
local set, sets, task, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local target, groups, aggregated, remains = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local count, state, id, msg, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local at, group, task_prefix = ARGV[6], ARGV[7], ARGV[8]

if not holds(sets, set, count) then
  local again = state ~= '' and redis.pcall('HGET', task, 'msg') == msg
  return again and '2' or '4'
end
local large = tonumber(count) > 100
if state ~= '' then
  local verdict = can_store(task, lock, id, msg, ttl)
  -- A lock of one of these tasks is released in this very step.
  if verdict == '3' and redis.call('EXISTS', task) == 0 and redis.call('ZSCORE', set, redis.call('GET', lock)) then
    verdict = '1'
  end
  if verdict ~= '1' then
    return verdict == '2' and '0' or verdict
  end
end
-- What can fail comes first. A name without a set is harmless.
if large then
  write('SADD', aggregated, remains)
end
if state ~= '' then
  if state == 'pending' then
    write('LPUSH', target, id)
    redis.call('HSET', task, 'msg', msg, 'state', state, 'pending_since', at)
  else
    write('ZADD', target, at, id)
    redis.call('HSET', task, 'msg', msg, 'state', state)
    if state == 'aggregating' then
      redis.pcall('SADD', groups, group)
      redis.call('HSET', task, 'group', group)
    elseif group ~= '' then
      redis.call('HSET', task, 'x_group', group)
    end
  end
  take_lock(task, lock, id, ttl)
end
redis.call('ZREM', sets, set)
if large then
  redis.call('RENAME', set, remains)
else
  for n = 9, #ARGV, 2 do
    delete_task(task_prefix, ARGV[n], ARGV[n + 1])
  end
  redis.call('DEL', set)
end
return '1'
