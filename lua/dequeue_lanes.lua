-- dequeue_lanes: give tasks to a worker from a queue that has limits: those that wait in lanes with room, then pending ones; a
-- pending task whose lane has no room is parked. At most 10 tasks are taken per call, and 20 pending ones looked at.
--
-- Transition: pending, scheduled -> active; pending -> scheduled       Go: none
-- A lane is a rule and a key, as lanes_of names it. A parked task is scheduled for Go, with the time of its fallback as its score,
-- and says in the field x_waits in which lane it waits, and since when. An entry of `waiting` that says something else is stale: Go has
-- run, deleted or archived the task; it is dropped when it is met. A slot counts while its task has a lease; of a full lane, up to 20
-- are looked at. Rates are GCRA: `tat` is the millisecond at which the next start would be due without a burst, with a + before it unless
-- a handler said that it is too much.
-- In a strict lane one task is at turn. It has the lane's slot from then on until it is over, wherever it is; it passes the others
-- when it comes again. A task that was parked there keeps its place while it says so, also while it is pending, or Go works it.
-- Under a fair limit, of all that is looked at and all that waits, the lane with the lowest turn gives the next one (start-time fair
-- queueing): each start moves its turn by one over its weight. What is pending and not taken is parked. A lane that comes joins at the
-- lowest turn, one that was shut one start behind it. One that has run empty keeps its turn until the others have come so far.
-- While a breaker rests (free_slots has said so) nothing starts in its lane; then one at a time, until one has ended well. A lane of an
-- adaptive rate has a part of it after a handler said that it is too much, see share_of.
-- A lane is looked at again within five minutes, whatever shuts it: whoever opens it may be killed before they say so.
--
-- KEYS
--   1  paused     asynq:{<queue>}:paused     STRING
--   2  pending    asynq:{<queue>}:pending    LIST
--   3  active     asynq:{<queue>}:active     LIST
--   4  lease      asynq:{<queue>}:lease      ZSET
--   5  scheduled  asynq:{<queue>}:scheduled  ZSET
--   6  limits     asynq:{<queue>}:x:rules    STRING
--   7  waiting    asynq:{<queue>}:x:waiting  ZSET
--   8  slots      asynq:{<queue>}:x:slots    ZSET
--   9  due        asynq:{<queue>}:x:due      ZSET
--  10  lanes      asynq:{<queue>}:x:lanes    HASH
--  11  stats      asynq:{<queue>}:x:limit-stats  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  expires    unix second at which the lease ends
--   3  run        token that names this run
--   4  limit      how many tasks to take at the most; 0: only park those of a fair limit
--   5  timed      1: say also since when each task was pending; else 0
--   6  max_bytes  no more tasks once their messages have so many bytes
-- DERIVED
--   prefix .. 't:' .. id, prefix .. 'x:tat:' .. lane, prefix .. 'x:health:' .. lane, prefix .. 'x:pace:' .. lane, and the lock that a dropped stub still names
-- RETURNS letters, one for each task taken or dropped
--   a  taken
--   r  dropped, because there was an id without a message
--   h  alone: the queue is paused
--   f  alone: it has no limits any more
--   then 1 if there may be more to be had now, 2 if a limit for all of the queue lets nothing start, else 0, and 4 more if there are pending ones that a fair limit
--   has not seen; the unix millisecond at which to look again (-1: when something changes), and the one at which this was said;
--   then in their order of each a id, msg, if timed pending_since (unix nanoseconds; empty when it is not known), and its lanes,
--   separated by spaces; of each r id.
-- needs: first_ms is_finished is_wrong_type lanes_of make_active read_rules share_of
local call = redis.call
local paused, pending, active, lease, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limits, waiting, slots, due, lanes, stats = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local prefix, expires, run, timed = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local limit, max_bytes = math.min(tonumber(ARGV[4]), 10), tonumber(ARGV[6])
local WINDOW, LANES, PAGE, HOLDERS, LOOK_AGAIN, FARTHEST, FALLBACK = 20, 10, 5, 20, 2000, 300000, 3600

if call('EXISTS', paused) == 1 then
  return { 'h' }
end
local text = call('GET', limits)
if not text then
  return { 'f' }
end
local rules = read_rules(text)
if #rules == 0 and call('ZCARD', due) == 0 then
  call('DEL', limits, stats, lanes)
  return { 'f' }
end
local lanes_of_task = lanes_of(rules)
local time = call('TIME')
local now = time[1] * 1000 + time[2] / 1000
-- The entries of a lane are its name, a space, and more. The character after the space is the exclamation mark, at which a range of them ends.
local task_prefix, ends = prefix .. 't:', { ' ', '!' }

-- A set of another type is an error before anything was written.
call('ZCARD', scheduled)
call('ZCARD', waiting)
call('ZCARD', slots)

local by_name, is_fair = {}, false
for n = 1, #rules do
  by_name[rules[n].name] = rules[n]
  is_fair = is_fair or rules[n].is_fair
end

-- Lanes, as far as this call has to do with them: due is when to look at those who wait, nil where nobody does.
local known, order, lowest, fair, fresh = {}, {}, 1, {}, {}
local function load(names)
  local new, tats, breakers, healths, adaptive, paces = {}, {}, {}, {}, {}, {}
  for n = 1, #names do
    local name = names[n]
    if not known[name] then
      -- Without its rule, nothing holds a lane up any more.
      local ruled = by_name[string.match(name, '^[^:]*')]
      if ruled and ruled.is_gate and name ~= ruled.name .. ':' then
        -- A lane of the limit that had this name before.
        ruled = nil
      end
      local rule = ruled or { interval = 0, burst = 1 }
      known[name] = { name = name, rule = rule, interval = rule.interval, is_ruled = ruled, holds = {} }
      new[#new + 1] = name
      tats[#tats + 1] = prefix .. 'x:tat:' .. name
      if rule.breaker then
        breakers[#breakers + 1], healths[#healths + 1] = known[name], prefix .. 'x:health:' .. name
      end
      if rule.adapt then
        adaptive[#adaptive + 1], paces[#paces + 1] = known[name], prefix .. 'x:pace:' .. name
      end
    end
  end
  if #new == 0 then
    return
  end
  paces = #paces > 0 and call('MGET', unpack(paces)) or {}
  for n = 1, #adaptive do
    adaptive[n].interval = adaptive[n].interval / share_of(paces[n], adaptive[n].rule, now)
  end
  local values, dues = call('MGET', unpack(tats)), call('ZMSCORE', due, unpack(new))
  local own = call('HMGET', lanes, unpack(new))
  for n = 1, #new do
    local lane = known[new[n]]
    local is_read, value = own[n], nil
    if is_read then
      is_read, value = pcall(cjson.decode, own[n])
    end
    value = is_read and type(value) == 'table' and value or {}
    order[#order + 1] = lane
    lane.due = tonumber(dues[n])
    -- Starts under this rate bring it no further than a burst ahead: what is farther was charged under a slower one, and is forgotten.
    -- A handler may bring it as far as it likes.
    local is_charge, tat = string.match(values[n] or '', '^(%+?)([%d.]+)$')
    tat = math.max(tonumber(tat) or 0, now)
    local farthest = now + lane.rule.burst * lane.interval
    lane.is_spent = tat > farthest and (is_charge == '+' or not lane.is_ruled)
    lane.tat = lane.is_spent and farthest or tat
    lane.most = lane.is_ruled and not lane.rule.is_strict and tonumber(value.concurrency) or lane.rule.concurrency
    lane.is_paused = lane.is_ruled and value.paused == true
    if lane.rule.is_fair then
      local at = lane.due
      lane.step = 1 / math.max(tonumber(value.weight) or 1, 1)
      lane.turn = at and at > 0 and at < first_ms() and at or at and lowest + lane.step or lowest
      lane.fresh, lane.entries, lane.at, lane.skip = {}, {}, 0, 0
    end
  end
  healths = #healths > 0 and call('MGET', unpack(healths)) or {}
  for n = 1, #breakers do
    local rests_until = tonumber(string.match(healths[n] or '', '^%d+ %d+ %d+ (%d+)')) or 0
    breakers[n].rests_until, breakers[n].most = rests_until, rests_until > 0 and 1 or breakers[n].most
  end
end

-- Whether a task without a lease is at turn: it is not over, and it has the key of this lane. Another one may have its id by now.
local function is_at_turn(lane, id)
  local fields = redis.pcall('HMGET', task_prefix .. id, 'state', 'msg')
  local names = not is_wrong_type(fields) and not is_finished(fields[1]) and lanes_of_task(fields[2] or '') or {}
  for n = 1, #names do
    if names[n] == lane.name then
      return true
    end
  end
  return false
end

local stale = {}
local function count_slots(lane)
  if lane.rule.is_gate then
    lane.used = call('ZCARD', lease)
    return
  end
  local from, to = '[' .. lane.name .. ends[1], '(' .. lane.name .. ends[2]
  lane.used = call('ZLEXCOUNT', slots, from, to)
  if lane.used < lane.most then
    return
  end
  local skip = lane.used > HOLDERS and math.floor(now) % (lane.used - HOLDERS + 1) or 0
  local holders, ids = call('ZRANGEBYLEX', slots, from, to, 'LIMIT', skip, HOLDERS), {}
  for n = 1, #holders do
    ids[n] = string.sub(holders[n], #lane.name + 2)
  end
  local leases = call('ZMSCORE', lease, unpack(ids))
  for n = 1, #holders do
    if leases[n] or lane.rule.is_strict and is_at_turn(lane, ids[n]) then
      lane.holds[ids[n]] = true
    else
      stale[#stale + 1] = holders[n]
      lane.used = lane.used - 1
    end
  end
end

-- How many may start in a lane now, or whether one may that has a slot there; where none, also the millisecond at which to look again.
local function room(lane, id)
  local left = 2 ^ 31
  if lane.most and not lane.used then
    count_slots(lane)
  end
  if lane.is_paused then
    return 0, now + FARTHEST
  end
  if (lane.rests_until or 0) > now then
    return 0, math.min(lane.rests_until, now + FARTHEST)
  end
  if lane.most then
    if lane.used >= lane.most and not lane.holds[id] then
      return 0, now + LOOK_AGAIN
    end
    left = math.max(lane.most - lane.used, 1)
  end
  local interval = lane.interval
  local slack = now + (lane.rule.burst - 1) * interval - lane.tat
  if slack < 0 then
    return 0, math.min(now - slack, now + FARTHEST)
  end
  return interval > 0 and math.min(left, math.floor(slack / interval + 1e-9) + 1) or left
end

-- The first lane for which a task has to wait: there is no room, or others stand in line before it. `from` is where it stands itself. Whether
-- a pending one has to wait for its turn is another question.
local function find_blocking(needs, id, from)
  for n = 1, #needs do
    local lane = known[needs[n]]
    -- Gates let nothing wait, but less be taken.
    local is_strict, passes = lane.rule.is_strict, lane.rule.is_gate or lane.rule.is_fair and not from
    local is_behind = lane.due and not (lane.is_empty or from and (lane == from or not is_strict))
    if not passes and (is_behind and not is_strict or room(lane, id) < 1 or is_behind and not lane.holds[id]) then
      return lane
    end
  end
end

local words, taken, dropped, reply, count = {}, {}, {}, { '', 0, -1, math.floor(now) }, 4
local new_slots, waited = {}, {}

local function take_slot(lane, id)
  new_slots[#new_slots + 1], new_slots[#new_slots + 2] = 0, lane.name .. ' ' .. id
  lane.used = lane.used + 1
  lane.holds[id] = true
end

-- Who is at turn takes its slot, also where another lane lets it wait.
local function keep_turn(name, blocking, id)
  local lane = known[name]
  if lane and lane.rule.is_strict and lane ~= blocking then
    take_slot(lane, id)
  end
end

local function start(id, msg, since, names, wait)
  taken[#taken + 1] = id
  waited[#waited + 1] = wait and id or nil
  words[#words + 1] = 'a'
  reply[count + 1], reply[count + 2] = id, msg
  count = count + 2
  if timed == '1' then
    count = count + 1
    reply[count] = since or ''
  end
  count = count + 1
  reply[count] = table.concat(names, ' ')
  max_bytes = max_bytes - #msg
  for n = 1, #names do
    local lane = known[names[n]]
    if lane.interval > 0 then
      lane.tat, lane.is_spent = lane.tat + lane.interval, true
    end
    if lane.rule.is_fair then
      lane.turn, lane.is_changed = lane.turn + lane.step, true
    end
    if lane.rule.is_gate then
      lane.used = lane.used and lane.used + 1
    elseif lane.used then
      take_slot(lane, id)
    end
  end
end

-- The rules for all of the queue: nothing is parked for them, less is taken.
local gates = {}
for n = 1, #rules do
  if rules[n].is_gate then
    gates[#gates + 1] = rules[n].name .. ':'
  end
end
load(gates)
for n = 1, #gates do
  limit = math.min(limit, (room(known[gates[n]])))
end

-- What waits in lanes that are due.
local pulled, gone, parked, waits = {}, {}, {}, {}
local function park(id, lane, since)
  waits[#waits + 1], waits[#waits + 2] = 0, lane.name .. ' ' .. since .. ' ' .. id
  if not lane.due or lane.is_empty then
    lane.due, lane.is_empty, lane.is_changed = lane.due or now, false, true
  end
  call('HSET', task_prefix .. id, 'state', 'scheduled', 'x_waits', lane.name .. ' ' .. since)
end

local moved = {}
local function join(lane)
  fair[#fair + 1] = not lane.is_listed and lane or nil
  lane.is_listed = true
  return lane
end

-- Takes the task of an entry of a lane, or moves it into the lane for which it has to wait; whether it stays where it is.
local function pull(entry, lane)
  local wait, id = string.match(entry, '^([^ ]+ [^ ]+) (.*)$')
  local fields = redis.pcall('HMGET', task_prefix .. id, 'msg', 'state', 'x_waits', 'pending_since')
  fields = is_wrong_type(fields) and {} or fields
  local msg, state = fields[1], fields[2]
  local is_here, stays = msg and msg ~= '' and fields[3] == wait, false
  if is_here and state == 'scheduled' then
    local needs = lanes_of_task(msg)
    load(needs)
    local blocking = find_blocking(needs, id, lane)
    stays = blocking == lane or not blocking and max_bytes <= 0
    if blocking and not stays then
      moved[#moved + 1] = { id, blocking, blocking.holds[id] and '0' or string.match(wait, ' (.*)$') }
      keep_turn(needs[1], blocking, id)
    elseif not stays then
      pulled[#pulled + 1] = id
      start(id, msg, fields[4], needs, wait)
    end
  elseif is_here and lane.rule.is_strict and not is_finished(state) then
    -- Somebody has run it: it is at turn all the same.
    stays = room(lane, id) < 1
    if not stays then
      take_slot(lane, id)
    end
  end
  if not stays then
    gone[#gone + 1] = entry
  end
  return stays
end

-- Of a queue with a fair limit: those of which somebody says that there is room; whose turn it is; whose time has come.
local function due_lanes(from, to)
  return call('ZRANGEBYSCORE', due, from, to, 'LIMIT', 0, LANES)
end
local names, last_turn = {}, nil
if is_fair then
  local turns = call('ZRANGEBYSCORE', due, '(0', string.format('(%.0f', first_ms()), 'WITHSCORES', 'LIMIT', 0, LANES)
  lowest, last_turn = tonumber(turns[2]) or lowest, tonumber(turns[2 * LANES])
  if limit > 0 then
    local now_room, time_has_come = due_lanes('-inf', 0), due_lanes(string.format('%.0f', first_ms()), now)
    for n = 1, LANES do
      names[#names + 1] = now_room[n]
      names[#names + 1] = turns[2 * n - 1]
      names[#names + 1] = time_has_come[n]
    end
  end
elseif limit > 0 then
  names = due_lanes('-inf', now)
end
load(names)
for n = 1, #names do
  if #taken == limit then
    -- The others come first the next time.
    break
  end
  local lane = known[names[n]]
  lane.is_changed = true
  -- Who is at turn in a strict lane may stand in it too.
  local wanted = math.min(lane.rule.is_strict and 1 or room(lane), limit - #taken)
  if lane.rule.is_gate then
    lane.is_empty = true
  elseif lane.rule.is_fair then
    join(lane)
  elseif wanted > 0 then
    -- Some more, because some may be stale.
    local most, last = wanted + HOLDERS, #taken + wanted
    local entries = call('ZRANGEBYLEX', waiting, '[' .. lane.name .. ends[1], '(' .. lane.name .. ends[2], 'LIMIT', 0, most)
    lane.is_empty = #entries < most
    for m = 1, #entries do
      if #taken == last or pull(entries[m], lane) then
        lane.is_empty = false
        break
      end
    end
  end
end

-- What is pending, the oldest first.
local seen, is_end, is_full, found = 0, false, false, {}
while not (is_end or is_full) and seen < WINDOW and (is_fair or #taken < limit and max_bytes > 0) do
  local look = is_fair and WINDOW or math.min(limit - #taken, WINDOW - seen)
  local ids, needed, all = call('LRANGE', pending, -seen - look, -seen - 1), {}, {}
  is_end = #ids < look
  for n = #ids, 1, -1 do
    local fields = redis.pcall('HMGET', task_prefix .. ids[n], 'msg', 'pending_since', 'group', 'x_waits')
    fields = is_wrong_type(fields) and {} or fields
    if fields[1] and fields[1] ~= '' then
      fields.needs = lanes_of_task(fields[1])
      for k = 1, #fields.needs do
        all[#all + 1] = fields.needs[k]
      end
    end
    needed[n] = fields
  end
  load(all)
  for n = #ids, 1, -1 do
    local id, fields = ids[n], needed[n]
    local needs = fields.needs
    local blocking = needs and find_blocking(needs, id)
    if not needs then
      dropped[#dropped + 1] = id
      words[#words + 1] = 'r'
      count = count + 1
      reply[count] = id
    elseif blocking then
      found[#found + 1] = { id, blocking, fields }
      keep_turn(needs[1], blocking, id)
      if not blocking.due or blocking.is_empty then
        blocking.due, blocking.is_empty, blocking.is_changed = blocking.due or now, false, true
      end
    elseif is_fair then
      local lane = join(known[needs[1]])
      fresh[#fresh + 1] = { id, lane, fields }
      lane.fresh[#lane.fresh + 1] = fresh[#fresh]
    elseif #taken >= limit or max_bytes <= 0 then
      is_full = true
      break
    else
      start(id, fields[1], fields[2], needs, fields[4])
    end
    seen = seen + 1
  end
end

-- Whose turn it is.
local function next_entry(lane)
  if not lane.due or lane.is_empty then
    return nil
  end
  lane.at = lane.at + 1
  if lane.at > #lane.entries then
    local range = { '[' .. lane.name .. ends[1], '(' .. lane.name .. ends[2], 'LIMIT', lane.skip, PAGE }
    lane.entries, lane.at, lane.skip = call('ZRANGEBYLEX', waiting, unpack(range)), 1, lane.skip + PAGE
  end
  lane.is_empty = not lane.entries[lane.at]
  return lane.entries[lane.at]
end
local looks = 0
while is_fair and #taken < limit and max_bytes > 0 and looks < 2 * WINDOW do
  local first
  for n = 1, #fair do
    local lane = fair[n]
    if not lane.is_through and (not first or lane.turn < first.turn) then
      first = lane
    end
  end
  -- Beyond the last that was looked up, others may come before it.
  if not first or last_turn and first.turn > last_turn then
    break
  end
  looks = looks + 1
  local entry = room(first) > 0 and next_entry(first)
  local task = not entry and first.fresh[1]
  if entry then
    first.is_through = pull(entry, first)
  elseif task and room(first) > 0 then
    local id, fields = task[1], task[3]
    local blocking = find_blocking(fields.needs, id, first)
    table.remove(first.fresh, 1)
    task[2] = blocking
    if not blocking then
      start(id, fields[1], fields[2], fields.needs, fields[4])
    end
  else
    first.is_through = true
  end
end
for n = 1, #fresh do
  found[#found + 1] = fresh[n][2] and fresh[n]
end
reply[1] = table.concat(words)

-- Hand out, and park.
local refused = make_active(active, lease, task_prefix, taken, expires, run)
if refused then
  return refused
end
for n = 1, #waited do
  call('HDEL', task_prefix .. waited[n], 'x_waits')
end
if seen > 0 then
  call('LTRIM', pending, 0, -seen - 1)
end
-- The microsecond by which those come behind the others of a lane whom this call parks there, also after the clock was set back.
local function first_place(lane)
  if not lane.place then
    lane.place = time[1] * 1e6 + time[2]
    local range = { '(' .. lane.name .. ends[2], '[' .. lane.name .. ends[1], 'BYLEX', 'REV', 'LIMIT', 0, 1 }
    local last = lane.rule.is_strict and call('ZRANGE', waiting, unpack(range))[1]
    if last then
      lane.place = math.max(lane.place, (tonumber(string.sub(string.match(last, ' (%d*)'), 1, 16)) or 0) + 1)
    end
  end
  return lane.place
end
if #taken == 0 and seen == 0 and #order > 0 then
  -- A removal first: then Redis lets the rest happen when it is out of memory.
  call('ZREM', due, '')
end
local counts = {}
for n = 1, #found do
  local id, lane, fields = unpack(found[n])
  counts[lane.rule.name] = (counts[lane.rule.name] or 0) + 1
  -- Who is at turn is the first, and who comes back into its lane has its place there.
  local since = fields[4] and string.match(fields[4], '^([^ ]+ )') == lane.name .. ' ' and string.match(fields[4], ' (%d+)$')
  since = lane.holds[id] and '0' or since or string.format('%.0f%03d', first_place(lane), n)
  park(id, lane, since)
  parked[#parked + 1] = math.floor(now / 1000 + (lane.rule.fallback or FALLBACK) * (0.9 + time[2] % 1000 / 5000))
  parked[#parked + 1] = id
  if fields[3] then
    -- Go's forward would put it into the group.
    call('HDEL', task_prefix .. id, 'group')
  end
end
for n = 1, #moved do
  park(unpack(moved[n]))
end
if #pulled > 0 then
  call('ZREM', scheduled, unpack(pulled))
end
if #gone > 0 then
  call('ZREM', waiting, unpack(gone))
end
if #stale > 0 then
  call('ZREM', slots, unpack(stale))
end
if #parked > 0 then
  call('ZADD', scheduled, unpack(parked))
end
if #waits > 0 then
  call('ZADD', waiting, unpack(waits))
end
if #new_slots > 0 then
  call('ZADD', slots, unpack(new_slots))
end
local dues, undue, shut_until = {}, {}, nil
for n = 1, #fair do
  local lane = fair[n]
  if lane.due and not lane.is_empty and room(lane) > 0 then
    last_turn = math.min(last_turn or lane.turn, lane.turn)
  end
end
for n = 1, #order do
  local lane = order[n]
  if lane.is_spent then
    call('SET', prefix .. 'x:tat:' .. lane.name, string.format('+%.3f', lane.tat), 'PX', math.ceil(lane.tat - now) + 1)
  end
  if lane.rule.is_gate then
    local left, again = room(lane)
    if left < 1 then
      shut_until = math.max(shut_until or 0, lane.due and lane.due > now and lane.due or math.ceil(again))
    end
    if left < 1 and (not lane.due or lane.due <= now) then
      dues[#dues + 1], dues[#dues + 2] = math.ceil(again), lane.name
    elseif left > 0 and lane.due then
      undue[#undue + 1] = lane.name
    end
  elseif lane.rule.is_fair and (lane.is_empty or not lane.due) then
    if last_turn and lane.turn > last_turn then
      dues[#dues + 1], dues[#dues + 2] = math.min(lane.turn, first_ms() - 1), lane.name
    elseif lane.due then
      undue[#undue + 1] = lane.name
    end
  elseif lane.is_changed and lane.is_empty then
    undue[#undue + 1] = lane.name
  elseif lane.is_changed then
    local left, again = room(lane)
    local open = lane.turn and math.min(lane.turn, first_ms() - 1) or math.floor(now)
    dues[#dues + 1], dues[#dues + 2] = left > 0 and open or math.ceil(again), lane.name
  end
end
if #undue > 0 then
  call('ZREM', due, unpack(undue))
end
if #dues > 0 then
  call('ZADD', due, unpack(dues))
end
if #dropped > 0 then
  -- needs: delete_task
  for n = 1, #dropped do
    delete_task(task_prefix, dropped[n])
  end
end
for name, more in pairs(counts) do
  -- A count is news: that it cannot be written must not stop a script half-way.
  redis.pcall('HINCRBY', stats, name .. ':parked', more)
end
local first = call('ZRANGE', due, 0, 0, 'WITHSCORES')
reply[3] = tonumber(first[2]) and math.ceil(first[2]) or -1
if shut_until then
  reply[2], reply[3] = 2, shut_until
elseif not is_end or first[2] and tonumber(first[2]) <= now then
  reply[2] = 1
end
reply[2] = reply[2] + (is_fair and not is_end and 4 or 0)
return reply
