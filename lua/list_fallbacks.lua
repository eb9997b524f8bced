-- list_fallbacks: which of the pending tasks of a queue say when others may run them, 1 to 100 per call, the oldest first.
--
-- Transition: none        Go: none
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending  LIST
-- ARGV
--   1  prefix   asynq:{<queue>}:t:
--   2  skip     how many of the oldest to leave out
--   3  count    how many to look at
--   4  header   the name of the header that says so
-- DERIVED
--   prefix .. id
-- RETURNS how many were looked at, then of each task with this header its id, and what the header says
-- needs: message_field
local pending, prefix, skip, count, header = KEYS[1], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local ids = redis.call('LRANGE', pending, -skip - count, -skip - 1)
local found = { #ids }
for n = #ids, 1, -1 do
  local msg = redis.pcall('HGET', prefix .. ids[n], 'msg')
  local entry, at = nil, type(msg) == 'string' and string.find(msg, header, 1, true) and 1 or nil
  while at do
    entry, at = message_field(msg, 15, at)
    if entry and message_field(entry, 1) == header then
      found[#found + 1] = ids[n]
      found[#found + 1] = message_field(entry, 2) or ''
    end
  end
end
return found
