-- dequeue_lanes: give tasks to a worker from a queue that has limits: those that wait in lanes with room, then pending ones; a
-- pending task whose lane has no room is parked. At most 10 tasks are taken per call, and 20 pending ones looked at.
--
-- Transition: pending, scheduled -> active; pending -> scheduled       Go: none
-- A lane is a rule and a key, as lanes_of names it. A parked task is scheduled for Go, with the time of its fallback as its score,
-- and says in the field x_waits in which lane it waits, and since when. An entry of `waiting` that says something else is stale: Go has
-- run, deleted or archived the task; it is dropped when it is met. A slot counts while its task has a lease; of a full lane, up to 20
-- are looked at. Rates are GCRA: `tat` is the millisecond at which the next start would be due without a burst.
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
--   4  limit      how many tasks to take at the most
--   5  timed      1: say also since when each task was pending; else 0
--   6  max_bytes  no more tasks once their messages have so many bytes
-- DERIVED
--   prefix .. 't:' .. id, prefix .. 'x:tat:' .. lane, and the lock that a dropped stub still names
-- RETURNS letters, one for each task taken or dropped
--   a  taken
--   r  dropped, because there was an id without a message
--   h  alone: the queue is paused
--   f  alone: it has no limits any more
--   then 1 if there may be more to be had now, 2 if a limit for all of the queue lets nothing start, else 0; the unix millisecond at which to look again (-1: when something changes);
--   then in their order of each a id, msg, if timed pending_since (unix nanoseconds; empty when it is not known), and its lanes, with blanks
--   between; of each r id.
-- needs: is_wrong_type lanes_of make_active read_rules
local paused, pending, active, lease, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limits, waiting, slots, due, lanes, stats = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local prefix, expires, run, timed = ARGV[1], ARGV[2], ARGV[3], ARGV[5]
local limit, max_bytes = math.min(tonumber(ARGV[4]), 10), tonumber(ARGV[6])
local WINDOW, LANES, HOLDERS, LOOK_AGAIN, FALLBACK = 20, 10, 20, 2000, 3600

if redis.call('EXISTS', paused) == 1 then
  return { 'h' }
end
local text = redis.call('GET', limits)
if not text then
  return { 'f' }
end
local rules = read_rules(text)
if #rules == 0 and redis.call('ZCARD', due) == 0 then
  redis.call('DEL', limits, stats)
  return { 'f' }
end
local lanes_of_task = lanes_of(rules)
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
-- The names of a lane's entries go on with a blank; after it comes an exclamation mark.
local task_prefix, ends = prefix .. 't:', { ' ', '!' }

-- A set of another type is an error before anything was written.
redis.call('ZCARD', scheduled)
redis.call('ZCARD', waiting)
redis.call('ZCARD', slots)

local by_name = {}
for n = 1, #rules do
  by_name[rules[n].name] = rules[n]
end

-- Lanes, as far as this call has to do with them: due is when to look at those who wait, nil where nobody does.
local known, order = {}, {}
local function load(names)
  local new, tats = {}, {}
  for n = 1, #names do
    local name = names[n]
    if not known[name] then
      local rule = by_name[string.match(name, '^[^:]*')] or { interval = 0, burst = 1 }
      known[name] = { name = name, rule = rule }
      new[#new + 1] = name
      tats[#tats + 1] = prefix .. 'x:tat:' .. name
    end
  end
  if #new == 0 then
    return
  end
  local values, dues = redis.call('MGET', unpack(tats)), redis.call('ZMSCORE', due, unpack(new))
  local own = redis.call('HMGET', lanes, unpack(new))
  for n = 1, #new do
    local lane = known[new[n]]
    local is_read, value = pcall(cjson.decode, own[n] or '{}')
    value = is_read and type(value) == 'table' and value or {}
    order[#order + 1] = lane
    lane.tat, lane.due = math.max(tonumber(values[n]) or 0, now), tonumber(dues[n])
    lane.most = tonumber(value.concurrency) or lane.rule.concurrency
    lane.is_paused = value.paused == true or lane.rule.paused == true
  end
end

local stale = {}
local function count_slots(lane)
  if lane.rule.is_gate then
    lane.used = redis.call('ZCARD', lease)
    return
  end
  local from, to = '[' .. lane.name .. ends[1], '(' .. lane.name .. ends[2]
  lane.used = redis.call('ZLEXCOUNT', slots, from, to)
  if lane.used < lane.most then
    return
  end
  local skip = lane.used > HOLDERS and math.floor(now) % (lane.used - HOLDERS + 1) or 0
  local holders, ids = redis.call('ZRANGEBYLEX', slots, from, to, 'LIMIT', skip, HOLDERS), {}
  for n = 1, #holders do
    ids[n] = string.sub(holders[n], #lane.name + 2)
  end
  local leases = redis.call('ZMSCORE', lease, unpack(ids))
  for n = 1, #holders do
    if not leases[n] then
      stale[#stale + 1] = holders[n]
      lane.used = lane.used - 1
    end
  end
end

-- How many may start in a lane now; where none, also the millisecond at which to look again.
local function room(lane)
  local left = 2 ^ 31
  if lane.is_paused then
    return 0, now + FALLBACK * 1000
  end
  if lane.most then
    if not lane.used then
      count_slots(lane)
    end
    if lane.used >= lane.most then
      return 0, now + LOOK_AGAIN
    end
    left = lane.most - lane.used
  end
  local interval = lane.rule.interval
  local slack = now + (lane.rule.burst - 1) * interval - lane.tat
  if slack < 0 then
    return 0, now - slack
  end
  return interval > 0 and math.min(left, math.floor(slack / interval + 1e-9) + 1) or left
end

local words, taken, dropped, reply, count = {}, {}, {}, { '', 0, -1 }, 3
local new_slots, waited = {}, {}
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
    if lane.rule.interval > 0 then
      lane.tat, lane.is_spent = lane.tat + lane.rule.interval, true
    end
    if lane.used and not lane.rule.is_gate then
      new_slots[#new_slots + 1], new_slots[#new_slots + 2] = 0, lane.name .. ' ' .. id
    end
    lane.used = lane.used and lane.used + 1
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
  redis.call('HSET', task_prefix .. id, 'state', 'scheduled', 'x_waits', lane.name .. ' ' .. since)
end

local names = limit > 0 and redis.call('ZRANGEBYSCORE', due, '-inf', now, 'LIMIT', 0, LANES) or {}
load(names)
local moved = {}
for n = 1, #names do
  local lane = known[names[n]]
  lane.is_changed = true
  local wanted = math.min((room(lane)), limit - #taken)
  if lane.rule.is_gate then
    lane.is_empty = true
  elseif wanted > 0 then
    -- Some more, because some may be stale.
    local most, last = wanted + HOLDERS, #taken + wanted
    local entries = redis.call('ZRANGEBYLEX', waiting, '[' .. lane.name .. ends[1], '(' .. lane.name .. ends[2], 'LIMIT', 0, most)
    lane.is_empty = #entries < most
    for m = 1, #entries do
      if #taken == last then
        lane.is_empty = false
        break
      end
      local wait, id = string.match(entries[m], '^([^ ]+ [^ ]+) (.*)$')
      local fields = redis.call('HMGET', task_prefix .. id, 'msg', 'state', 'x_waits', 'pending_since')
      local msg = fields[1]
      gone[#gone + 1] = entries[m]
      if msg and msg ~= '' and fields[2] == 'scheduled' and fields[3] == wait then
        local needs, blocking = lanes_of_task(msg), nil
        load(needs)
        for k = 1, #needs do
          if not blocking and room(known[needs[k]]) < 1 then
            blocking = known[needs[k]]
          end
        end
        if blocking then
          moved[#moved + 1] = { id, blocking, string.match(wait, ' (.*)$') }
        elseif max_bytes <= 0 then
          gone[#gone] = nil
          lane.is_empty = false
          break
        else
          pulled[#pulled + 1] = id
          start(id, msg, fields[4], needs, wait)
        end
      end
    end
  end
end

-- What is pending, the oldest first.
local seen, is_over, is_full, found = 0, false, false, {}
while not (is_over or is_full) and seen < WINDOW and #taken < limit and max_bytes > 0 do
  local look = math.min(limit - #taken, WINDOW - seen)
  local ids, needed, all = redis.call('LRANGE', pending, -seen - look, -seen - 1), {}, {}
  is_over = #ids < look
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
    local id, fields, blocking = ids[n], needed[n], nil
    local needs = fields.needs
    for k = 1, needs and #needs or 0 do
      local lane = known[needs[k]]
      if not blocking and (lane.due and not lane.is_empty and not lane.rule.is_gate or room(lane) < 1) then
        blocking = lane
      end
    end
    if not needs then
      dropped[#dropped + 1] = id
      words[#words + 1] = 'r'
      count = count + 1
      reply[count] = id
    elseif blocking then
      found[#found + 1] = { id, blocking, fields }
      if not blocking.due or blocking.is_empty then
        blocking.due, blocking.is_empty, blocking.is_changed = blocking.due or now, false, true
      end
    elseif #taken >= limit or max_bytes <= 0 then
      is_full = true
      break
    else
      start(id, fields[1], fields[2], needs, fields[4])
    end
    seen = seen + 1
  end
end
reply[1] = table.concat(words)

-- Hand out, and park.
local refused = make_active(active, lease, task_prefix, taken, expires, run)
if refused then
  return refused
end
for n = 1, #waited do
  redis.call('HDEL', task_prefix .. waited[n], 'x_waits')
end
if seen > 0 then
  redis.call('LTRIM', pending, 0, -seen - 1)
end
local counts = {}
for n = 1, #found do
  local id, lane, fields = unpack(found[n])
  counts[lane.rule.name] = (counts[lane.rule.name] or 0) + 1
  -- Who comes back into its lane has its place there.
  local since = fields[4] and string.match(fields[4], '^([^ ]+ )') == lane.name .. ' ' and string.match(fields[4], ' (%d+)$')
  since = since or fields[2] and #fields[2] == 19 and string.match(fields[2], '^%d+$') or string.format('%.0f%06d', math.floor(now), n)
  park(id, lane, since)
  parked[#parked + 1] = math.floor(now / 1000 + (lane.rule.fallback or FALLBACK) * (0.9 + time[2] % 1000 / 5000))
  parked[#parked + 1] = id
  if fields[3] then
    -- Go's forward would put it into the group.
    redis.call('HDEL', task_prefix .. id, 'group')
  end
end
for n = 1, #moved do
  park(unpack(moved[n]))
end
if #pulled > 0 then
  redis.call('ZREM', scheduled, unpack(pulled))
end
if #gone > 0 then
  redis.call('ZREM', waiting, unpack(gone))
end
if #stale > 0 then
  redis.call('ZREM', slots, unpack(stale))
end
if #parked > 0 then
  redis.call('ZADD', scheduled, unpack(parked))
end
if #waits > 0 then
  redis.call('ZADD', waiting, unpack(waits))
end
if #new_slots > 0 then
  redis.call('ZADD', slots, unpack(new_slots))
end
local dues, undue, shut_until = {}, {}, nil
for n = 1, #order do
  local lane = order[n]
  if lane.is_spent then
    redis.call('SET', prefix .. 'x:tat:' .. lane.name, string.format('%.3f', lane.tat), 'PX', math.ceil(lane.tat - now) + 1)
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
  elseif lane.is_changed and lane.is_empty then
    undue[#undue + 1] = lane.name
  elseif lane.is_changed then
    local left, again = room(lane)
    dues[#dues + 1], dues[#dues + 2] = left > 0 and math.floor(now) or math.ceil(again), lane.name
  end
end
if #undue > 0 then
  redis.call('ZREM', due, unpack(undue))
end
if #dues > 0 then
  redis.call('ZADD', due, unpack(dues))
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
local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
reply[3] = tonumber(first[2]) and math.ceil(first[2]) or -1
if shut_until then
  reply[2], reply[3] = 2, shut_until
elseif not is_over or first[2] and tonumber(first[2]) <= now then
  reply[2] = 1
end
return reply
