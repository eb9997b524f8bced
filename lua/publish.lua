-- publish: store a task under a key, or change the one that has it, by what stands there.
--
-- Transition: (absent), completed, archived -> pending, scheduled; pending, scheduled, retry: another message or another time
-- Go: none
-- The key is the id of the task. A task that a worker has, or that waits in a group, stays as it is; one that is parked in a lane keeps its
-- time, which is that of its fallback. The field x_published says how often and when the task was published, and last by which call: so a
-- call that is sent again is told what it has done.
-- With follow there is a twin: while a worker has one of the two, the other is stored, to be started when that has ended. Whoever ends
-- it makes the twin pending; else it is due at its fallback, or sooner when something is published after the end.
--
-- KEYS
--   1  task         asynq:{<queue>}:t:<id>          HASH
--   2  twin         asynq:{<queue>}:t:<id>~         HASH
--   3  pending      asynq:{<queue>}:pending         LIST
--   4  scheduled    asynq:{<queue>}:scheduled       ZSET
--   5  retry        asynq:{<queue>}:retry           ZSET
--   6  completed    asynq:{<queue>}:completed       ZSET
--   7  archived     asynq:{<queue>}:archived        ZSET
--   8  window       asynq:{<queue>}:x:window:<md5>  STRING
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  id           task id
--   3  msg          encoded task message
--   4  now_ns       unix time in nanoseconds
--   5  due          unix second at which the task is due; 0: at once
--   6  may          which may be done: replace, reschedule, restart, follow, separated by spaces
--   7  most         seconds after the first publish at which a task is due at the latest; 0: no such limit
--   8  window_ms    milliseconds for which nothing else is published under the key; 0: no window
--   9  call         hexadecimal number of this call
--  10  twin_msg     encoded task message of the twin; empty without follow
--  11  fallback     unix second at which one that follows is due at the latest; 0 without follow
-- RETURNS a word, then of the task as it is now msg, state and its score ('' each where there is none), and the milliseconds that are
-- left of the window (0 or less: none)
--   stored       there was none
--   replaced     it has this message now, and this time where that may be
--   rescheduled  it has this time now
--   restarted    it had ended, and begins anew as this one
--   follows      a worker has it; this one follows
--   kept         it stays as it was; nothing was written
--   suppressed   the window of an earlier publish is open; nothing was written
--   taken        the id is that of something that is no task, or that of the twin is another task's; alone; nothing was written
-- needs: delete_task is_wrong_type kept_fields store
local task, twin, pending, scheduled, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, archived, window = KEYS[6], KEYS[7], KEYS[8]
local task_prefix, id, msg, now_ns, due = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local may, most, window_ms, call = ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9]
local twin_msg, fallback = ARGV[10], ARGV[11]

local waits = { pending = pending, scheduled = scheduled, retry = retry }
local ended = { completed = completed, archived = archived }
local function look(key, its_id, new)
  local fields = redis.pcall('HMGET', key, 'msg', 'state', 'x_published', 'x_waits')
  if is_wrong_type(fields) or not fields[1] and redis.call('EXISTS', key) == 1 then
    return nil
  end
  local one = { key = key, id = its_id, new = new, msg = fields[1] or '', state = fields[2] or '', is_parked = fields[4] }
  one.set = one.state ~= 'pending' and (waits[one.state] or ended[one.state])
  one.score = one.set and redis.call('ZSCORE', one.set, its_id) or ''
  one.count, one.first, one.last, one.caller, one.outcome = string.match(fields[3] or '', '^(%d+) (%d+) (%d+) (%x+) (%a+)$')
  return one
end
local function allows(what)
  return string.find(may, what, 1, true) ~= nil
end

local one = look(task, id, msg)
local other = allows('follow') and look(twin, id .. '~', twin_msg)
-- A task that was stored under the twin's id by a plain enqueue has neither the field nor the header of one that is published.
local is_strange = other and other.msg ~= '' and not other.count and not string.find(other.msg, 'x-follow', 1, true)
if not one or other == nil or is_strange then
  return { 'taken' }
end
local left = 0
local function answer(word)
  return { word, one.msg, one.state, one.score, left }
end
if other and (other.caller == call or waits[other.state] and not (waits[one.state] and tonumber(one.last or 0) > tonumber(other.last or 0))) then
  one, other = other, one -- of two that wait, the one that was published last
end
local opener = window_ms ~= '0' and redis.call('GET', window)
left = opener and redis.call('PTTL', window) or 0
if one.caller == call then
  return answer(one.outcome)
elseif opener == call then
  return answer('stored')
elseif left > 0 then
  return answer('suppressed')
end

local now = tonumber(string.sub(now_ns, 1, -10))
local word, moves = 'kept', false
if waits[one.state] then
  if one.state == 'scheduled' and one.score ~= '' and not one.is_parked then
    -- What follows is due when there is nothing any more that it follows.
    local follows = other and (other.state == 'active' or waits[other.state])
    moves = not follows and (other or allows('reschedule'))
  end
  word = allows('replace') and 'replaced' or allows('reschedule') and moves and 'rescheduled' or word
else
  local follows = false
  if other and one.state == 'active' then
    one, other = other, one
    follows = true
  elseif other then
    follows = other.state == 'active'
  end
  if one.msg == '' then
    word = follows and 'follows' or 'stored'
  elseif ended[one.state] and one.score ~= '' and allows('restart') then
    word = follows and 'follows' or 'restarted'
  end
  if follows then
    due = fallback
  elseif most > 0 and due ~= '0' then
    due = string.format('%.0f', math.min(tonumber(due), now + most))
  end
end
if word == 'kept' then
  return answer(word)
end

if waits[one.state] then
  if moves then
    local at = due == '0' and now or tonumber(due)
    at = most > 0 and math.min(at, (tonumber(one.first) or now) + most) or at
    one.score = string.format('%.0f', allows('reschedule') and at or math.min(at, tonumber(one.score)))
    redis.call('ZADD', scheduled, one.score, one.id)
  end
  if word == 'replaced' then
    one.msg = one.new .. kept_fields(one.msg)
    redis.call('HSET', one.key, 'msg', one.msg)
    redis.call('HDEL', one.key, 'x_progress', 'x_log', 'x_cursor') -- those are of the other payload
  end
else
  local state = due == '0' and 'pending' or 'scheduled'
  if one.msg ~= '' then
    redis.call(due == '0' and 'LLEN' or 'ZCARD', waits[state]) -- a key of another type is an error before anything was written
    redis.call('ZREM', one.set, one.id)
    delete_task(task_prefix, one.id)
  end
  store(state, waits[state], one.key, one.id, one.new, due == '0' and now_ns or due, nil, nil, '')
  one.msg, one.state, one.score, one.count, one.first = one.new, state, due ~= '0' and due or '', 0, nil
end
local first = one.first or string.format('%.0f', now)
redis.call('HSET', one.key, 'x_published', string.format('%.0f %s %.0f %s %s', (one.count or 0) + 1, first, now, call, word))
if window_ms ~= '0' then
  redis.call('SET', window, call, 'PX', window_ms)
  left = tonumber(window_ms)
end
return answer(word)
