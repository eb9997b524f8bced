-- dequeue_matching: like dequeue, up to 100 tasks per call, but only of certain types; the others stay
-- where they are.
--
-- Transition: pending -> active            Go: none
-- Looks at a window of the list, counted from the tail, so that a call never runs long; the caller moves
-- the window when it found nothing.
--
-- KEYS
--   1  paused   asynq:{<queue>}:paused   STRING
--   2  pending  asynq:{<queue>}:pending  LIST
--   3  active   asynq:{<queue>}:active   LIST
--   4  lease    asynq:{<queue>}:lease    ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  expires      unix second at which the lease ends
--   3  run          token that names this run
--   4  count        how many tasks to take at the most
--   5  skip         how many ids to leave out at the tail
--   6  window       how many ids to look at
--   7  exact        how many of the following patterns are whole types; the rest are prefixes
--   8  timed        1: say also since when each task was pending; else 0
--   +  patterns
-- DERIVED
--   task_prefix .. id
-- RETURNS how many ids it looked at, then id, msg, id, msg, ... oldest first, when timed id, msg,
--   pending_since as in dequeue; 0 and nothing else when there is nothing to look at; the integer 0 when
--   the queue is paused.
local paused, pending, active, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, expires, run, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local skip, window, exact = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local timed = ARGV[8] == '1'

if redis.call('EXISTS', paused) == 1 then
  return 0
end

local types, prefixes = {}, {}
for n = 9, #ARGV do
  if n < 9 + exact then
    types[ARGV[n]] = true
  else
    prefixes[#prefixes + 1] = ARGV[n]
  end
end

-- The type is field 1 of the message: a tag byte, the length as a varint, the text.
local function wanted(msg)
  if string.byte(msg, 1) ~= 10 then
    return false
  end
  local len, unit, at, byte = 0, 1, 2, nil
  repeat
    byte = string.byte(msg, at)
    if not byte then
      return false
    end
    len, unit, at = len + byte % 128 * unit, unit * 128, at + 1
  until byte < 128
  local kind = string.sub(msg, at, at + len - 1)
  if types[kind] then
    return true
  end
  for n = 1, #prefixes do
    if string.sub(kind, 1, #prefixes[n]) == prefixes[n] then
      return true
    end
  end
  return false
end

local waiting = redis.call('LRANGE', pending, -skip - window, -skip - 1)
local reply, ids = { #waiting }, {}
for n = #waiting, 1, -1 do
  local id = waiting[n]
  local msg = redis.pcall('HGET', task_prefix .. id, 'msg')
  if type(msg) == 'string' and wanted(msg) then
    reply[#reply + 1] = id
    reply[#reply + 1] = msg
    if timed then
      reply[#reply + 1] = redis.call('HGET', task_prefix .. id, 'pending_since') or ''
    end
    ids[#ids + 1] = id
    if #ids == limit then
      break
    end
  end
end
local refused = hand_out(active, lease, task_prefix, ids, expires, run)
if refused then
  return refused
end
for n = 1, #ids do
  redis.call('LREM', pending, -1, ids[n])
end
return reply
