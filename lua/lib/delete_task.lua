-- delete_task: delete a task's hash, and the lock that it owns. A key of another type is left alone.
--
-- lock is the lock's name, where the caller knows it ('' for none). Else the hash says it; for a task in a group, Go keeps
-- it in the message only (W23), in field 10.
-- needs: is_wrong_type message_field release_lock
local function delete_task(task_prefix, id, lock)
  local task = task_prefix .. id
  if not lock then
    local fields = redis.pcall('HMGET', task, 'unique_key', 'group')
    if is_wrong_type(fields) then
      return
    end
    lock = fields[1] or fields[2] and message_field(redis.call('HGET', task, 'msg') or '', 10) or ''
  end
  redis.call('DEL', task)
  if lock ~= '' then
    release_lock(lock, id)
  end
end
