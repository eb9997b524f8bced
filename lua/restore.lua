-- restore: store tasks as they were in another Redis, 1 to 100 per call, and note how far the import got.
--
-- Transition: (absent) -> pending, scheduled, retry, archived, completed, aggregating     Go: (none)
-- The note is written with the tasks, so that an import that died half-way goes on where it was, also when
-- tasks it has stored are done and gone by then. An archived task is stored only where the archive has room: the next one that dies
-- would push it out, or an older one.
--
-- KEYS
--   1  record     asynq:{<queue>}:x:import:<export>  HASH: line, stored, refused
--   2  groups     asynq:{<queue>}:groups     SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>     HASH
--   +2 lock       asynq:{<queue>}:unique:... STRING; the task key again when there is none
--   +3 place      asynq:{<queue>}:<state>, or g:<group>: LIST when pending, else ZSET
-- ARGV
--   1  from       where the note must stand: the last line that was taken, 0 at the beginning
--   2  to         where it will stand
--   3  keep       seconds to keep the note
--   4  max        how many archived tasks to keep
--   then for each task
--   +1 id         task id
--   +2 state      its state
--   +3 score      its score; empty when pending
--   +4 group      its group, to be listed; empty for none
--   +5 ttl        seconds the lock lives; 0 for no lock, below 0 for a window
--   +6 length     how many fields and values follow, at most 100
--   +7 fields     field, value, field, value ... of the hash, without the state
-- RETURNS
--   the line where the note stands, as a number, if that is not from; nothing was written
--   otherwise a letter for each task, or a message
--   a  stored
--   l  another task holds the lock; nothing was written
--   w  the task is gone and its window is open; nothing was written
--   x  the archive is full; nothing was written
--   else the id is taken, by the task with this message; nothing was written
-- needs: can_store nth store
local record, groups = KEYS[1], KEYS[2]
local from, to, keep, max = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local reached = redis.call('HGET', record, 'line') or '0'
if reached ~= from then
  return tonumber(reached)
end

-- An error in the midst of it would leave half of a task.
local function check(key, expected)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == expected
end
local fits = check(groups, 'set')
local first, at, checked = {}, 5, {} -- first: where the arguments of each task begin
for n = 1, (#KEYS - 2) / 3 do
  local _, _, place = nth(KEYS, 3, 3, n)
  local _, state, _, _, _, length = nth(ARGV, at, 6, 1)
  if not checked[place] then
    checked[place] = true
    fits = fits and check(place, state == 'pending' and 'list' or 'zset')
  end
  first[n] = at
  at = at + 6 + length
end
if not fits then
  return redis.error_reply('WRONGTYPE a key of the queue holds another type')
end

local words, stored = {}, 0
for n = 1, #first do
  local task, lock, place = nth(KEYS, 3, 3, n)
  local id, state, score, group, ttl, length = nth(ARGV, first[n], 6, 1)
  local word = can_store(task, id, '', lock, ttl)
  if word == 'a' and state == 'archived' and redis.call('ZCARD', place) >= max then
    word = 'x'
  elseif word == 'a' then
    local fields = { nth(ARGV, first[n] + 6, tonumber(length), 1) }
    store(state, place, task, id, nil, score, lock, ttl, group, groups, fields)
    stored = stored + 1
  elseif redis.call('EXISTS', task) == 1 then
    local msg = redis.pcall('HGET', task, 'msg')
    word = type(msg) == 'string' and msg or ''
  elseif word == 's' then
    word = 'w'
  end
  words[n] = word
end
redis.call('HSET', record, 'line', to)
redis.call('HINCRBY', record, 'stored', stored)
if stored < #first then
  -- A later import of the same file says of them that they were left out.
  redis.call('HINCRBY', record, 'refused', #first - stored)
end
redis.call('EXPIRE', record, keep)
return words
