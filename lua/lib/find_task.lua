-- find_task: in which state a task is, for whoever wants to change it; writes nothing. from is the state in
-- which it was seen; empty where that does not matter, and uncompleted where it only must not have succeeded.
-- RETURNS a letter, the state, and for an aggregating task its group
--   a  in this state
--   m  there is no such task; with a state, which may be '', when there is a hash without a message
--   w  active: a worker has it
--   c  it has moved on: its state is not `from`
--   p  its state is none of asynq's
-- needs: is_wrong_type
local is_state = { active = 1, pending = 1, scheduled = 1, retry = 1, archived = 1, completed = 1, aggregating = 1 }

local function find_task(prefix, id, from)
  local task = prefix .. 't:' .. id
  local fields = redis.pcall('HMGET', task, 'msg', 'state', 'group')
  if is_wrong_type(fields) then
    return 'm' -- a key of another type, which is not ours to touch
  end
  local state = fields[2] or ''
  local group = state == 'aggregating' and fields[3] or nil
  if not fields[1] or fields[1] == '' then
    local is_stub = redis.call('EXISTS', task) == 1
    return 'm', is_stub and (is_state[state] and state or '') or nil, group
  elseif not (from == '' or from == state or from == 'uncompleted' and state ~= 'completed') then
    return 'c', state
  elseif state == 'active' then
    return 'w', state
  end
  local is_sound = is_state[state] and (group or state ~= 'aggregating')
  return is_sound and 'a' or 'p', state, group
end
