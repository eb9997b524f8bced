-- archive_tasks: give up on tasks that nobody works on and keep them for inspection, 1 to 100 per call.
--
-- Transition: pending | scheduled | retry | completed | aggregating -> archived
-- Go: archiveTaskCmd, archiveAllCmd, archiveAllPendingCmd, archiveAllAggregatingCmd
-- Differs from Go: many tasks take many short calls instead of one long one (W32); what is trimmed from
-- the archive is deleted, hash and lock, instead of being left behind (W17); pending_since is removed, for
-- Go does not set it when the task is run again.
--
-- KEYS
--   1  pending   asynq:{<queue>}:pending   LIST
--   2  archived  asynq:{<queue>}:archived  ZSET
--   3  groups    asynq:{<queue>}:groups    SET
-- ARGV
--   1  prefix    asynq:{<queue>}:
--   2  from      state in which the tasks were seen; of one task also empty, for any, or uncompleted, for any but that one
--   3  at        of pending tasks: the place counted from the head at which the first was seen
--   4  now       unix time in seconds
--   5  cutoff    archived tasks of this second or earlier are too old
--   6  max       how many archived tasks to keep
--   then for each task
--   +1 id        task id
-- DERIVED
--   prefix .. 't:' .. id, the set that the task's state or group names, and the locks of trimmed tasks
-- RETURNS how many archived tasks were trimmed, at most 100, and one letter for each task
--   a  archived
--   m  there is no such task
--   w  a worker has it
--   t  it was archived already
--   c  it is no longer in the state `from`
--   p  it is not where its state says: it is being aggregated, or a tool left it behind
--   e  it is pending, but not around `at`
--   Only with a was anything written.
-- needs: find_pending find_task leave_set remove_pending set_of trim write
local pending, archived, groups = KEYS[1], KEYS[2], KEYS[3]
local prefix, from, at, now, cutoff, max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

redis.call('ZCARD', archived) -- fails by its type before anything was written
local ids = { unpack(ARGV, 7) }
local places = from == 'pending' and find_pending(pending, ids, tonumber(at)) or {}
local words, found, spare = {}, {}, {}
for n = 1, #ids do
  local id = ids[n]
  local word, state, group = find_task(prefix, id, from)
  if word == 'a' then
    local set = set_of(prefix, state, group)
    if state == 'archived' then
      word = 't'
    elseif from == 'pending' then
      word = places[id] and 'a' or 'e'
      found[id] = places[id]
    elseif state == 'pending' then
      word = redis.call('LREM', pending, -1, id) > 0 and 'a' or 'p'
    elseif not redis.call('ZSCORE', set, id) then
      word = 'p'
    end
    if word == 'a' then
      write('ZADD', archived, now, id)
      if state ~= 'pending' then
        leave_set(set, id, groups, group)
      end
      redis.call('HSET', prefix .. 't:' .. id, 'state', 'archived')
      redis.call('HDEL', prefix .. 't:' .. id, 'pending_since', 'x_crashes')
      spare[#spare + 1] = id
    end
  end
  words[n] = word
end
remove_pending(pending, found)
local trimmed = 0
if tonumber(now) > tonumber(cutoff) then
  trimmed = trim(archived, prefix .. 't:', tonumber(cutoff), tonumber(max), 100, spare)
end
return { trimmed, table.concat(words) }
