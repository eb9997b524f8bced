-- update_payload: give a task that nobody works on another payload, and the lock that belongs to it.
--
-- Transition: none; scheduled, pending, retry, archived or aggregating as before
-- Go: updateTaskPayloadCmd
-- Differs from Go: written only over the message that the caller has read (W44); the lock follows the
-- payload (W44); in more states than scheduled.
--
-- KEYS
--   1  task      asynq:{<queue>}:t:<id>       HASH
--   2  old_lock  asynq:{<queue>}:unique:...   STRING; the task key again when the lock stays
--   3  new_lock  asynq:{<queue>}:unique:...   STRING; the task key again when the lock stays
-- ARGV
--   1  id        task id
--   2  old_msg   the message as it was read
--   3  new_msg   the message to write
-- DERIVED
--   the set of the group of a task that is aggregating
-- RETURNS a letter, and with l the id of the task that has the lock
--   a  written
--   m  there is no such task
--   w  a worker has it, or it is completed
--   l  another task holds the lock of the new payload
--   c  the message is no longer the one that was read
--   p  it is not where its state says: it is being aggregated, or a tool left it behind
--   Only with a was anything written.
-- needs: is_wrong_type set_of
local task, old_lock, new_lock = KEYS[1], KEYS[2], KEYS[3]
local id, old_msg, new_msg = ARGV[1], ARGV[2], ARGV[3]

local fields = redis.pcall('HMGET', task, 'msg', 'state', 'unique_key', 'group')
if is_wrong_type(fields) or not fields[1] or fields[1] == '' then
  return { 'm' }
elseif fields[2] == 'active' or fields[2] == 'completed' then
  return { 'w' }
elseif fields[1] ~= old_msg then
  return { 'c' }
elseif fields[2] == 'aggregating' then
  local prefix = string.sub(task, 1, -#id - 3)
  if not fields[4] or not redis.call('ZSCORE', set_of(prefix, nil, fields[4]), id) then
    return { 'p' }
  end
end
if old_lock ~= new_lock then
  local holder = redis.call('GET', new_lock)
  if holder and holder ~= id then
    return { 'l', holder }
  end
  -- A lock that has run out, or that another task has by now, is not taken anew.
  local held = redis.pcall('GET', old_lock)
  local left = not is_wrong_type(held) and held == id and redis.call('PTTL', old_lock) or 0
  if left > 0 then
    redis.call('SET', new_lock, id, 'PX', left)
    redis.call('DEL', old_lock)
  end
  if fields[3] then
    redis.call('HSET', task, 'unique_key', new_lock)
  end
end
redis.call('HSET', task, 'msg', new_msg)
return { 'a' }
