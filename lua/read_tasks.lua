-- read_tasks: some fields of the next of these tasks, of as many as come to about 4 MiB.
--
-- Transition: none                         Go: none
--
-- KEYS
--   for each task, at most 100
--   +1 task   asynq:{<queue>}:t:<id>, or in a bin  HASH
-- ARGV
--   for each field
--   +1 field  its name
-- RETURNS for each task its fields, or nothing where the key has another type; no more after the task with which they are 4 MiB
-- needs: is_wrong_type
local replies, bytes = {}, 0
for n, task in ipairs(KEYS) do
  local fields = redis.pcall('HMGET', task, unpack(ARGV))
  if is_wrong_type(fields) then
    fields = false
  end
  replies[n] = fields
  for _, field in ipairs(fields or {}) do
    bytes = bytes + #(field or '')
  end
  if bytes > 4194304 then
    break
  end
end
return replies
