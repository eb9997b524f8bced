-- dequeue_matching: like dequeue, up to 100 tasks per call, but only of certain types; the others stay
-- where they are.
--
-- Transition: pending -> active            Go: none
-- Looks at the tasks that the caller names, which has read their ids from the list before. What somebody else has
-- taken meanwhile is passed over.
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
--   5  side         1 or -1: the end of the list that the ids are near, head or tail
--   6  timed        1: say also since when each task was pending; else 0
--   7  names        how many ids follow
--   8  exact        how many of the patterns after them are whole types; the rest are prefixes
--   9  bytes        no more tasks once their messages have so many bytes
--   +  ids, the first that is to be taken first; patterns
-- DERIVED
--   task_prefix .. id
-- RETURNS a character for each id it looked at, 1 taken, 0 left where it is, - not there any more; then id,
--   msg, id, msg, ... in their order, when timed id, msg, pending_since as in dequeue; the integer 0 when
--   the queue is paused.
-- needs: make_active message_field
local paused, pending, active, lease = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local task_prefix, expires, run, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local side, timed, names, exact = ARGV[5], ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8])
local most, bytes = tonumber(ARGV[9]), 0

if redis.call('EXISTS', paused) == 1 then
  return 0
end

local types, prefixes = {}, {}
for n = 10 + names, #ARGV do
  if n < 10 + names + exact then
    types[ARGV[n]] = true
  else
    prefixes[#prefixes + 1] = ARGV[n]
  end
end

local function wanted(msg)
  local kind = message_field(msg, 1)
  if not kind then
    return false
  end
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

-- Whoever takes a task says so in its hash. What says something else is searched for near the end only, because a
-- search in vain takes as long as the list.
local function waits(id, state)
  return redis.call('LPOS', pending, id, 'RANK', side, 'MAXLEN', state == 'pending' and 0 or 1000)
end

local reply, ids, verdicts = { '' }, {}, {}
for n = 10, 9 + names do
  local id = ARGV[n]
  local task = redis.pcall('HMGET', task_prefix .. id, 'msg', 'state')
  local msg = not task.err and task[1]
  local verdict = '0'
  if not msg or wanted(msg) then
    if not waits(id, task[2]) then
      verdict = '-'
    elseif msg then
      verdict = '1'
      reply[#reply + 1] = id
      reply[#reply + 1] = msg
      if timed then
        reply[#reply + 1] = redis.call('HGET', task_prefix .. id, 'pending_since') or ''
      end
      ids[#ids + 1] = id
      bytes = bytes + #msg
    end
  end
  verdicts[#verdicts + 1] = verdict
  if #ids == limit or bytes >= most then
    break
  end
end
reply[1] = table.concat(verdicts)
local refused = make_active(active, lease, task_prefix, ids, expires, run)
if refused then
  return refused
end
for n = 1, #ids do
  redis.call('LREM', pending, side, ids[n])
end
return reply
