-- move_task: put a task that waits into another queue of its family.
--
-- Transition: pending | scheduled | retry -> the same, in the other queue; parked -> pending there        Go: none
-- It keeps its time, its fields and its lock, which is that of the family. What one queue parked under its limits, the other one
-- judges anew.
--
-- KEYS
--   1  task       asynq:{<queue>}:t:<id>  HASH
--   2  moved      asynq:{<other>}:t:<id>  HASH
-- ARGV
--   1  id         task id
--   2  prefix     asynq:{<queue>}:
--   3  to_prefix  asynq:{<other>}:
--   4  old_msg    the message as it was read
--   5  new_msg    the same with the name of the other queue
--   6  now_ns     unix time in nanoseconds
-- DERIVED
--   prefix and to_prefix, with the state of the task
-- RETURNS one letter
--   a  it is in the other queue
--   s  it was before, by a call whose reply was lost
--   m  there is no such task
--   i  the other queue has a task of this id
--   w  a worker has it, it waits in a group, or it has ended
--   c  the message is no longer the one that was read
--   p  it is not where its state says
--   Only with a was anything written.
-- needs: is_wrong_type
local task, moved, id, prefix, to_prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3]
local old_msg, new_msg, now_ns = ARGV[4], ARGV[5], ARGV[6]

local fields = redis.pcall('HMGET', task, 'msg', 'state', 'x_waits')
if is_wrong_type(fields) then
  return 'm'
elseif redis.call('EXISTS', moved) == 1 then
  return not fields[1] and redis.pcall('HGET', moved, 'msg') == new_msg and 's' or 'i'
elseif not fields[1] or fields[1] == '' then
  return 'm'
elseif fields[1] ~= old_msg then
  return 'c'
end
local state = fields[2]
-- A worker of Go's that takes what was parked leaves the field behind.
local is_parked = state == 'scheduled' and fields[3]
if state ~= 'pending' and state ~= 'scheduled' and state ~= 'retry' then
  return 'w'
end
local is_listed, becomes_listed = state == 'pending', state == 'pending' or is_parked
local from, to = prefix .. state, to_prefix .. (becomes_listed and 'pending' or state)
local place = is_listed and redis.call('LPOS', from, id, 'RANK', -1) or not is_listed and redis.call('ZSCORE', from, id)
if not place then
  return 'p'
end
-- Fails by its type before anything was written.
redis.call(becomes_listed and 'LLEN' or 'ZCARD', to)
redis.call('RENAME', task, moved)
if is_listed then
  redis.call('LREM', from, -1, id)
else
  redis.call('ZREM', from, id)
end
redis.call('HSET', moved, 'msg', new_msg)
redis.call('HDEL', moved, 'x_waits')
if is_parked then
  redis.call('HSET', moved, 'state', 'pending', 'pending_since', now_ns)
end
if becomes_listed then
  redis.call('LPUSH', to, id)
else
  redis.call('ZADD', to, place, id)
end
return 'a'
