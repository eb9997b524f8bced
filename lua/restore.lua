-- restore: store tasks as they were in another Redis, 1 to 100 per call, and note how far the import got.
--
-- Transition: (absent) -> pending, scheduled, retry, archived, completed, aggregating     Go: (none)
-- The note is written with the tasks, so that an import that died half-way goes on where it was, also when
-- tasks it has stored are done and gone by then.
--
-- KEYS
--   1  record     asynq:{<queue>}:x:import:<export>  HASH: line, stored
--   2  groups     asynq:{<queue>}:groups     SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>     HASH
--   +2 lock       asynq:{<queue>}:unique:... STRING; the task key again when there is none
--   +3 container  asynq:{<queue>}:<state>, or g:<group>: LIST when pending, else ZSET
-- ARGV
--   1  from       where the note must stand: the last line that was taken, 0 at the beginning
--   2  to         where it will stand
--   3  keep       seconds to keep the note
--   then for each task
--   +1 id         task id
--   +2 state      its state
--   +3 score      its score; empty when pending
--   +4 group      its group, to be listed; empty for none
--   +5 ttl        seconds the lock lives; 0 for no lock
--   +6 length     how many fields and values follow, at most 100
--   +7 fields     field, value, field, value ... of the hash, without the state
-- RETURNS
--   the line where the note stands, as a number, if that is not from; nothing was written
--   otherwise for each task
--     1    stored
--     3    another task holds the lock; nothing was written
--     msg  the id is taken, by the task with this message; nothing was written
-- needs: can_store
local record, groups = KEYS[1], KEYS[2]

local reached = redis.call('HGET', record, 'line') or '0'
if reached ~= ARGV[1] then
  return tonumber(reached)
end

-- An error in the midst of it would leave half of a task.
local function check(key, expected)
  local found = redis.call('TYPE', key).ok
  return found == 'none' or found == expected
end
local fits = check(groups, 'set')
local at, seen = 4, {}
for key = 3, #KEYS, 3 do
  local container = KEYS[key + 2]
  if not seen[container] then
    seen[container] = true
    fits = fits and check(container, ARGV[at + 1] == 'pending' and 'list' or 'zset')
  end
  at = at + 6 + ARGV[at + 5]
end
if not fits then
  return redis.error_reply('WRONGTYPE a key of the queue holds another type')
end

local verdicts, stored = {}, 0
at = 4
for key = 3, #KEYS, 3 do
  local task, lock, container = KEYS[key], KEYS[key + 1], KEYS[key + 2]
  local id, state, score, group, ttl = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  local length = tonumber(ARGV[at + 5])
  local verdict = can_store(task, lock, id, '', ttl)
  if verdict == '1' then
    if state == 'pending' then
      redis.call('LPUSH', container, id)
    else
      redis.call('ZADD', container, score, id)
    end
    if group ~= '' then
      redis.call('SADD', groups, group)
    end
    redis.call('HSET', task, 'state', state, unpack(ARGV, at + 6, at + 5 + length))
    if ttl ~= '0' then
      redis.call('SET', lock, id, 'EX', ttl)
    end
    stored = stored + 1
  elseif redis.call('EXISTS', task) == 1 then
    local msg = redis.pcall('HGET', task, 'msg')
    verdict = type(msg) == 'string' and msg or ''
  end
  verdicts[#verdicts + 1] = verdict
  at = at + 6 + length
end
redis.call('HSET', record, 'line', ARGV[2])
redis.call('HINCRBY', record, 'stored', stored)
redis.call('EXPIRE', record, ARGV[3])
return verdicts
