-- list_fallbacks: which of the tasks of a queue that are pending or parked in a lane say when others may run them, 1 to 100 per call,
-- the oldest pending one first.
--
-- Transition: none        Go: none
--
-- KEYS
--   1  pending  asynq:{<queue>}:pending    LIST
--   2  waiting  asynq:{<queue>}:x:waiting  ZSET
-- ARGV
--   1  prefix   asynq:{<queue>}:t:
--   2  skip     how many of them to leave out
--   3  count    how many to look at
--   4  header   the name of the header that says so
-- DERIVED
--   prefix .. id
-- RETURNS how many were looked at, then of each task with this header its id, and what the header says
-- needs: message_field
local pending, waiting, prefix, skip, count, header = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]

local ids, held = redis.call('LRANGE', pending, -skip - count, -skip - 1), redis.call('LLEN', pending)
local looked = {}
for n = #ids, 1, -1 do
  looked[#looked + 1] = ids[n]
end
local first = math.max(skip - held, 0)
for _, entry in ipairs(#ids < count and redis.call('ZRANGE', waiting, first, first + count - #ids - 1) or {}) do
  looked[#looked + 1] = string.match(entry, '^[^ ]+ [^ ]+ (.*)$') or ''
end
local found = { #looked }
for n = 1, #looked do
  local msg = redis.pcall('HGET', prefix .. looked[n], 'msg')
  local entry, at = nil, type(msg) == 'string' and string.find(msg, header, 1, true) and 1 or nil
  while at do
    entry, at = message_field(msg, 15, at)
    if entry and message_field(entry, 1) == header then
      found[#found + 1] = looked[n]
      found[#found + 1] = message_field(entry, 2) or ''
    end
  end
end
return found
