-- delete_tasks: delete tasks that nobody works on, with the locks they own, 1 to 100 per call; or move them into a bin, from
-- which undelete_tasks brings them back.
--
-- Transition: pending | scheduled | retry | archived | completed | aggregating -> (deleted)
-- Go: deleteTaskCmd, deleteAllCmd, deleteAllPendingCmd, deleteAllAggregatingCmd
-- Differs from Go: many tasks take many short calls instead of one long one (W32); locks of pending and
-- aggregating tasks are released too; what is left of a task (a hash whose id is in no list, W17; an id
-- without a hash, W12; a task called active that is in neither active nor lease) can be deleted.
--
-- KEYS
--   1  pending   asynq:{<queue>}:pending  LIST
--   2  groups    asynq:{<queue>}:groups   SET
--   3  active    asynq:{<queue>}:active   LIST
--   4  lease     asynq:{<queue>}:lease    ZSET
--   5  sets      asynq:{<queue>}:aggregation_sets  ZSET
--   6  aggregated  asynq:{<queue>}:x:aggregated  SET
--   7  piece     asynq:{<queue>}:x:bin:<op>:<n>  LIST; the pending list again without a bin
-- ARGV
--   1  prefix    asynq:{<queue>}:
--   2  from      state in which the tasks were seen; of one task also empty, for any, or uncompleted, for any but that one
--   3  seen_in   of aggregating tasks: the group in which they were seen
--   4  at        of pending tasks: the place counted from the head at which the first was seen
--   5  bin       asynq:{<queue>}:x:bin:<op>:t:, with which the names of the tasks in the bin begin; empty for none
--   6  now_ms    with a bin: unix time in milliseconds
--   7  keep      with a bin: seconds for which it keeps the tasks
--   8  keep_ids  with a bin: seconds for which it keeps their ids, no fewer than those of any task
--   then for each task
--   +1 id        task id
-- DERIVED
--   prefix .. 't:' .. id, its lock, and the set that the task's state or group names; bin .. id
-- RETURNS one letter for each task
--   a  deleted
--   m  there is no such task
--   w  a worker has it
--   c  it is no longer in the state `from`
--   p  it is being aggregated
--   r  there was an id without a task, or a hash without a message, which was deleted
--   e  it is pending, but not around `at`
--   t  the bin has a task of this id already
--   b  this piece of the bin has no room for so many ids; the same for all tasks
--   Only with a and r was anything written.
-- needs: delete_task find_pending find_task leave_set remove_pending set_of
local pending, groups, active, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local sets, aggregated, piece = KEYS[5], KEYS[6], KEYS[7]
local prefix, from, seen_in, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local bin, now_ms, keep, keep_ids = ARGV[5], ARGV[6], ARGV[7], ARGV[8]

-- Whether an aggregator has taken the task out of its group, or is done with it and about to delete it by
-- its id. More than 100 sets are not looked through.
local function is_staged(id)
  local looked_at = 0
  for _, names in ipairs({ redis.call('ZRANGE', sets, 0, 100), redis.call('SMEMBERS', aggregated) }) do
    for _, set in ipairs(names) do
      looked_at = looked_at + 1
      if looked_at > 100 or redis.call('ZSCORE', set, id) then
        return true
      end
    end
  end
  return false
end

local function is_worked_on(id)
  return redis.call('ZSCORE', lease, id) or redis.call('LPOS', active, id)
end

local nowhere = '' -- a state that nobody knows, or that is wrong
local ids = { unpack(ARGV, 9) }
if bin ~= '' and redis.call('LLEN', piece) + #ids > 1000 then
  return string.rep('b', #ids)
end
local places = from == 'pending' and find_pending(pending, ids, tonumber(at)) or {}
local words, found, is_any = {}, {}, from == '' or from == 'uncompleted'
for n = 1, #ids do
  local id = ids[n]
  local word, state, group = find_task(prefix, id, from)
  if word == 'm' and not is_any and (not state or state == from) then
    word, state = 'r', from
    group = from == 'aggregating' and (group or seen_in) or nil
  elseif word == 'm' and state then
    word = not is_any and 'c' or state == 'active' and 'w' or 'r'
  elseif word == 'p' then
    word, state = 'a', nowhere
  end
  if word == 'w' and not is_worked_on(id) then
    word, state = 'a', nowhere
  end
  if word == 'a' and bin ~= '' and redis.call('EXISTS', bin .. id) == 1 then
    word = 't'
  end
  if word == 'a' or word == 'r' then
    local set = set_of(prefix, state, group)
    local score -- '' in a list; false where it was in no place of its state
    if from == 'pending' then
      word = places[id] and word or 'e'
      found[id], score = places[id], ''
    elseif state == 'pending' then
      score = redis.call('LREM', pending, -1, id) > 0 and ''
    elseif state == nowhere then
      for _, other in ipairs({ 'scheduled', 'retry', 'archived', 'completed' }) do
        redis.call('ZREM', prefix .. other, id)
      end
    else
      score = redis.call('ZSCORE', set, id)
      if score then
        leave_set(set, id, groups, group)
      elseif state == 'aggregating' and is_staged(id) then
        word = 'p'
      end
    end
    if word == 'a' and bin ~= '' then
      -- needs: bin_task
      bin_task(prefix .. 't:', id, bin, piece, score, now_ms, keep, keep_ids)
    elseif word ~= 'p' and word ~= 'e' then
      -- Before remove_pending: when it is out of memory, Redis lets a script do that only after a deletion.
      delete_task(prefix .. 't:', id)
    end
  end
  words[n] = word
end
remove_pending(pending, found)
return table.concat(words)
