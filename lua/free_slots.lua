-- free_slots: give back the slots of tasks whose runs have ended, and look at their lanes now; a run may also say that nothing of a
-- limit is to start for a while, and how it has ended. 1 to 100 tasks per call.
--
-- Transition: none; after a report         Go: none
-- A hint: a slot without a lease is found stale also when this call is lost, and a task that has a lease keeps its slot, so that the
-- call may come late, or twice. In a strict lane a task keeps its slot until it is over.
-- A limit may have a breaker: when enough runs of a lane have ended badly, nothing starts there for a rest. Then one starts, and its end
-- lets the others start, or doubles the rest. What ends during a rest had begun before it, and says nothing.
-- An adaptive rate is halved where nothing is to start for a while, down to its least share.
--
-- KEYS
--   1  lease      asynq:{<queue>}:lease    ZSET
--   2  rules      asynq:{<queue>}:x:rules  STRING
--   3  slots      asynq:{<queue>}:x:slots  ZSET
--   4  due        asynq:{<queue>}:x:due    ZSET
--   5  stats      asynq:{<queue>}:x:limit-stats  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   then for each task
--   +1 id         task id
--   +2 lanes      its lanes, separated by spaces
--   +3 limit      the limit of which nothing is to start for a while; empty for none
--   +4 for_ms     for how many milliseconds
--   +5 is_well    1 if it has ended well, 0 if badly; empty where that says nothing
-- DERIVED
--   prefix .. 't:' .. id, prefix .. 'x:tat:' .. lane, prefix .. 'x:health:' .. lane, prefix .. 'x:pace:' .. lane
-- RETURNS how many lanes are to be looked at now
-- needs: first_ms is_finished nth read_rules share_of
local lease, rules, slots, due, stats = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, DAY_MS, SECOND_MS = ARGV[1], 86400000, 1000

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local ids = {}
for n = 1, (#ARGV - 1) / 5 do
  local id = nth(ARGV, 2, 5, n)
  ids[n] = id
end
local leased, freed, seen, opened = redis.call('ZMSCORE', lease, unpack(ids)), {}, {}, {}
local held, farthest, by_name, refused = {}, {}, nil, {}
local unruled = { interval = 0, burst = 1 }
local function rule_of(name)
  if not by_name then
    by_name = {}
    for _, rule in ipairs(read_rules(redis.call('GET', rules) or '{"rules":[]}')) do
      by_name[rule.name] = rule
    end
  end
  return by_name[name]
end
local function judge(lane, rule, is_well)
  local key, breaker = prefix .. 'x:health:' .. lane, rule.breaker
  local words, known = string.gmatch(redis.call('GET', key) or '', '%d+'), {}
  for n = 1, 5 do
    known[n] = tonumber(words() or 0)
  end
  local ends, bad, since, rests_until, rest = unpack(known)
  if rests_until > now then
    return
  elseif rests_until > 0 and is_well then
    redis.call('DEL', key)
    return
  elseif rests_until > 0 then
    rest = math.min(2 * rest, breaker.most)
  else
    if since + breaker.within <= now then
      ends, bad, since = 0, 0, now
    end
    ends, bad = ends + 1, bad + (is_well and 0 or 1)
    if ends < breaker.of or 100 * bad < breaker.percent * ends then
      local value = string.format('%.0f %.0f %.0f 0 0', ends, bad, since)
      redis.call('SET', key, value, 'PX', math.max(math.ceil(since + breaker.within - now), 1))
      return
    end
    rest = breaker.rest
  end
  local value = string.format('%.0f %.0f %.0f %.0f %.0f', ends, bad, since, math.ceil(now + rest), rest)
  redis.call('SET', key, value, 'PX', math.ceil(rest) + DAY_MS)
  redis.pcall('HINCRBY', stats, rule.name .. ':opened', 1)
end
local function slow_down(lane, rule, for_ms)
  local key = prefix .. 'x:pace:' .. lane
  local share, from = share_of(redis.call('GET', key), rule, now)
  -- Who was told beside the first, or while that one's time lasts, had begun at the rate of before.
  if not from or from <= now then
    share, from = math.max(share / 2, 1 / rule.adapt), math.ceil(now + math.max(for_ms, SECOND_MS))
    local whole = from + math.ceil((1 - share) * 10) * rule.per
    redis.call('SET', key, string.format('%.4f %.0f %.0f', share, from, whole), 'PX', math.ceil(whole - now))
  end
  return share
end
for n = 1, #ids do
  local id, lanes, limit, for_ms, is_well = nth(ARGV, 2, 5, n)
  for lane in string.gmatch(lanes, '[^ ]+') do
    local name = string.match(lane, '^[^:]*')
    local rule = rule_of(name) or unruled
    if not leased[n] and (not rule.is_strict or is_finished(redis.pcall('HGET', prefix .. 't:' .. id, 'state'))) then
      freed[#freed + 1] = lane .. ' ' .. id
      if not seen[lane] then
        seen[lane] = true
        opened[#opened + 1] = lane
      end
    end
    if is_well ~= '' and rule.breaker then
      judge(lane, rule, is_well == '1')
    end
    if name == limit then
      for_ms = tonumber(for_ms)
      local interval = rule.adapt and rule.interval / slow_down(lane, rule, for_ms) or rule.interval
      refused[#refused + 1] = rule.name
      held[lane] = math.max(held[lane] or 0, now + for_ms + (rule.burst - 1) * interval)
      farthest[lane] = now + rule.burst * interval
    end
  end
end
local dues, count = {}, 0
if #opened > 0 then
  local scores = redis.call('ZMSCORE', due, unpack(opened))
  for n = 1, #opened do
    -- Whose turn comes anyway keeps it.
    local at = tonumber(scores[n])
    if at and (at <= 0 or at >= first_ms()) and not held[opened[n]] then
      count = count + 1
      dues[2 * count - 1], dues[2 * count] = 0, opened[n]
    end
  end
  redis.call('ZREM', slots, unpack(freed))
end
if count > 0 then
  redis.call('ZADD', due, unpack(dues))
end
for lane, tat in pairs(held) do
  local key = prefix .. 'x:tat:' .. lane
  local is_charge, known = string.match(redis.call('GET', key) or '', '^(%+?)([%d.]+)$')
  known = tonumber(known) or 0
  -- What was charged under a slower rate is over, see dequeue_lanes.
  tat = math.max(tat, is_charge == '+' and math.min(known, farthest[lane]) or known)
  redis.call('SET', key, string.format('%.3f', tat), 'PX', math.ceil(tat - now) + 1)
end
for n = 1, #refused do
  redis.pcall('HINCRBY', stats, refused[n] .. ':too-many', 1)
end
return count
