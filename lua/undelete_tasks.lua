-- undelete_tasks: bring tasks back from the bin into which delete_tasks has moved them, 1 to 100 per call.
--
-- Transition: (deleted) -> pending, scheduled, retry, archived, completed, aggregating      Go: (none)
-- Pending tasks are taken next; the last one given is the first. A task that waited for room under a limit becomes pending as well if
-- its lane has forgotten it: a take gives it its old place. The others have the time that they had. A task gets its lock back
-- for as long as it would have held it. What is pending or in a set when this is sent again is told to be missing: from the bin.
-- An archived task comes back only where the archive has room: otherwise the next one that dies would push it out, for its score is old.
-- One that became too old for the archive meanwhile counts as archived now; otherwise it would be deleted at once.
--
-- KEYS
--   1  piece     asynq:{<queue>}:x:bin:<op>:<n>     LIST
--   2  pending   asynq:{<queue>}:pending            LIST
--   3  groups    asynq:{<queue>}:groups             SET
--   4  outcomes  asynq:{<queue>}:x:outcomes:<who>   LIST; this and the next only with an entry
--   5  lists     asynq:{<queue>}:x:outcome-lists    SET
-- ARGV
--   1  prefix    asynq:{<queue>}:
--   2  bin       asynq:{<queue>}:x:bin:<op>:t:
--   3  now_ms    unix time in milliseconds
--   4  cutoff    archived tasks of this second or earlier are too old
--   5  max       how many archived tasks to keep
--   6  entry     what members of flows tell (see tell) that have not ended: stamp and outcome; empty if none of the tasks is one
--   then for each task
--   +1 id        task id
-- DERIVED
--   bin .. id, prefix .. 't:' .. id, its lock, the set that the task's state or group names, and prefix .. 'x:waiting'
-- RETURNS one letter for each task
--   a  it is back
--   m  the bin does not have it (any more); its id was taken out
--   i  another task has the id
--   l  another task holds the uniqueness lock
--   p  there is no such state, or its list or set is a key of another type
--   x  the archive is full
--   With i, l, p and x nothing was written.
-- needs: can_store is_wrong_type lock_of set_of store
local piece, pending, groups, outcomes, lists = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, bin, now_ms, cutoff, max, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if entry ~= '' then
  -- needs: can_tell
  can_tell(outcomes, lists)
end
redis.call('LLEN', piece) -- fails by its type before anything was written

local types = { pending = 'list', scheduled = 'zset', retry = 'zset', archived = 'zset', completed = 'zset', aggregating = 'zset' }

-- Whether a key is of this type, or not there. An error in the midst of it would leave half of a task.
local function fits(key, expected)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == expected
end

local words, back = {}, {}
for n, id in ipairs({ unpack(ARGV, 7) }) do
  local binned, task, word = bin .. id, prefix .. 't:' .. id, 'm'
  local fields = redis.pcall('HMGET', binned, 'state', 'group', 'x_bin_score', 'x_bin_lock', 'x_waits')
  if not is_wrong_type(fields) and fields[1] then
    local waits = fields[1] == 'scheduled' and fields[5]
    local is_forgotten = waits and not redis.call('ZSCORE', prefix .. 'x:waiting', waits .. ' ' .. id)
    local state, score = is_forgotten and 'pending' or fields[1], fields[3]
    local group = state == 'aggregating' and fields[2] or nil
    local place = state == 'pending' and pending or set_of(prefix, state, group)
    local left = fields[4] == 'inf' and math.huge or fields[4] and tonumber(fields[4]) - now_ms or 0
    local lock = left > 0 and lock_of(binned) or nil
    word = can_store(task, id, '', lock, lock and '1' or '0')
    word = word == 's' and 'i' or word
    if word == 'a' and not (types[state] and (score or state == 'pending') and (group or state ~= 'aggregating')
      and fits(place, types[state]) and (not group or fits(groups, 'set'))) then
      word = 'p'
    end
    if word == 'a' and state == 'archived' then
      if redis.call('ZCARD', place) >= tonumber(max) then
        word = 'x'
      elseif tonumber(score) <= tonumber(cutoff) then
        score = string.format('%.0f', math.floor(now_ms / 1000))
      end
    end
    if word == 'a' then
      redis.call('RENAME', binned, task)
      redis.call('PERSIST', task)
      redis.call('HDEL', task, 'x_bin_score', 'x_bin_lock')
      if state == 'pending' then
        redis.call('RPUSH', pending, id)
        if is_forgotten then
          redis.call('HSET', task, 'state', state, 'pending_since', now_ms .. '000000')
        end
      else
        store(state, place, task, id, nil, score, nil, '0', group or '', groups, {})
      end
      if lock and left < math.huge then
        redis.call('SET', lock, id, 'PX', string.format('%.0f', left))
      elseif lock then
        redis.call('SET', lock, id)
      end
      -- What had ended is there again as it ended, and its flow knows how.
      if state ~= 'archived' and state ~= 'completed' then
        back[#back + 1] = id
      end
    end
  end
  if word == 'a' or word == 'm' then
    redis.call('LREM', piece, 1, id)
  end
  words[n] = word
end
if entry ~= '' then
  -- needs: tell
  tell(back, entry, outcomes, lists)
end
return table.concat(words)
