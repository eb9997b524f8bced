-- forget_cancel: a task that was to be canceled has ended; remove the record of that, unless it was asked for again meanwhile.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  cancels  asynq:x:cancels  HASH
-- ARGV
--   1  record   as it stands there
--   2  seen     its value when the task was looked at
-- RETURNS 1 if it was removed, else 0
local cancels, record, seen = KEYS[1], ARGV[1], ARGV[2]

if redis.call('HGET', cancels, record) ~= seen then
  return 0
end
return redis.call('HDEL', cancels, record)
