-- read_tasks: some fields of the next of these tasks, of as many as have messages of about 4 MiB.
--
-- Transition: none                         Go: none
--
-- KEYS
--   for each task, at most 100
--   +1 task   asynq:{<queue>}:t:<id>, or in a bin  HASH
-- ARGV
--   for each field
--   +1 field  its name; the first is msg
-- RETURNS for each task its fields, or nothing where the key has another type; no more after the task whose message makes them 4 MiB
-- needs: is_wrong_type
local replies, bytes, read = {}, 0, redis.pcall
for n, task in ipairs(KEYS) do
  local fields = read('HMGET', task, unpack(ARGV))
  local msg = fields[1]
  if msg then
    bytes = bytes + #msg
  elseif is_wrong_type(fields) then
    fields = false
  end
  replies[n] = fields
  if bytes > 4194304 then
    break
  end
end
return replies
