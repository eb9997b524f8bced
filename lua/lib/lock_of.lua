-- lock_of: the name of the lock that a task says is its own, '' for none; nil where the key is no task's. Of a task in a group, Go
-- keeps it in the message only (W23), in field 10.
-- needs: is_wrong_type message_field
local function lock_of(task)
  local fields = redis.pcall('HMGET', task, 'unique_key', 'group')
  if is_wrong_type(fields) then
    return nil
  end
  return fields[1] or fields[2] and message_field(redis.call('HGET', task, 'msg') or '', 10) or ''
end
