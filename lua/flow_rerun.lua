-- flow_rerun: run a node of a flow again, and all that waits for it, whether by itself or by others: they wait once more, as nodes of
-- another run, whose outcomes alone count. What is before them stays as it is. The flow and those above it open again, in a new
-- generation in which all their callbacks may come once more, with what is behind them there; flows that are nodes, as a whole.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  node    its name there, or its number
--   4  seen    the generation of the flow that the caller has seen
--   5  most    how many nodes may be changed
-- DERIVED
--   prefix .. number .. ':flow', ':states', ':names', ':before', ':after', ':kids', ':runs', ':signals', and those of its ancestors and of the flows that are nodes
-- RETURNS a letter; the generation it is now; how many nodes run again; the members and callbacks that are in the way; and what the
--   caller has to do, see flow_claim. All letters but a say that nothing was written:
--   a  they run again
--   s  they do already: the same was asked for before, of the same generation
--   c  it is of another generation by now
--   n  not all of it has ended; of what has not, at most ten are named
--   y  the node would be skipped: what it waits for has not come
--   k  members that are no nodes, and are named, cannot be run again, since the ledger does not have their tasks
--   b  these are more than may be changed
--   d  the flow, or one above it, is not committed, or was cancelled or abandoned
--   m  there is no such flow or node
-- needs: flow_claim flow_count flow_fate flow_load flow_rules flow_save flow_set flow_tolerate
local todo = KEYS[1]
local prefix, number, node, seen, most = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local now = tonumber(redis.call('TIME')[1])
local flow = flow_load(prefix, number)
if not flow or not flow.nodes or redis.call('HGET', prefix .. '0:flow', 'forgotten') then
  return { 'm', 0, 0, {}, {} }
end
local at = redis.call('HGET', prefix .. number .. ':names', node)
if not at and string.find(node, '^%d+$') and tonumber(node) < tonumber(flow.nodes) then
  at = tostring(tonumber(node))
end
if not at then
  return { 'm', 0, 0, {}, {} }
elseif flow.rerun == tostring(seen + 1) and flow.rerun_from == at then
  return { 's', tonumber(flow.generation), 0, {}, {} }
elseif tonumber(flow.generation) ~= seen then
  return { 'c', tonumber(flow.generation), 0, {}, {} }
end

-- What is to run again, flow by flow: what is behind a member of it, or all of it.
local parts, total, live, foreign = { { flow = flow, from = at, is_first = true } }, 0, {}, {}
local above = flow
while above.parent do
  local place = above.at
  above = flow_load(prefix, above.parent)
  parts[#parts + 1] = { flow = above, from = place }
end
for _, part in ipairs(parts) do
  if not part.flow.committed or part.flow.cancelled or part.flow.abandoned then
    return { 'd', 0, 0, {}, {} }
  end
end
local n = 1
while parts[n] do
  local part = parts[n]
  local key, bytes = prefix .. part.flow.number, redis.call('GET', prefix .. part.flow.number .. ':states') or ''
  local function state_of(member)
    local byte = string.byte(bytes, math.floor(member / 2) + 1) or 0
    return member % 2 == 0 and math.floor(byte / 16) or byte % 16
  end
  for _, event in ipairs({ 'complete', 'success', 'settled' }) do
    local callback = part.flow['callback:' .. event]
    if callback == 'due' or callback == 'sent' then
      live[#live + 1] = part.flow.number .. ' ' .. event
    end
  end
  local members, known = {}, {}
  if part.from then
    members[1], known[part.from] = part.from, true
    local read = 0
    while read < #members and #members <= most do
      local some = { unpack(members, read + 1, math.min(read + 100, #members)) }
      read = read + #some
      for _, after in ipairs(redis.call('HMGET', key .. ':after', unpack(some))) do
        for member in string.gmatch(after or '', '%d+') do
          if not known[member] then
            known[member] = true
            members[#members + 1] = member
          end
        end
      end
    end
    if not part.is_first then
      table.remove(members, 1)
    end
  else
    for member = 0, math.min(tonumber(part.flow.nodes), most + 1) - 1 do
      members[#members + 1] = tostring(member)
    end
    for member = tonumber(part.flow.nodes), (tonumber(part.flow.next) or 0) - 1 do
      if state_of(member) ~= 0 and #foreign < 10 then
        foreign[#foreign + 1] = part.flow.number .. ' ' .. member
      end
    end
  end
  total = total + #members
  if total > most then
    return { 'b', 0, 0, {}, {} }
  end
  local kids, list = {}, redis.call('HGETALL', key .. ':kids')
  for k = 1, #list, 2 do
    kids[list[k]] = list[k + 1]
  end
  part.members, part.states = members, {}
  for m, member in ipairs(members) do
    local state = state_of(tonumber(member))
    part.states[m] = state
    -- One that waits will wait for those, too.
    if state == 2 or state == 3 or state > 8 or state == 1 and part.is_first and member == at then
      live[#live + 1] = part.flow.number .. ' ' .. member
    elseif kids[member] then
      parts[#parts + 1] = { flow = flow_load(prefix, kids[member]) }
    end
  end
  n = n + 1
end
if #live > 0 then
  return { 'n', 0, 0, { unpack(live, 1, math.min(#live, 10)) }, {} }
elseif #foreign > 0 then
  return { 'k', 0, 0, foreign, {} }
elseif flow_fate(prefix, flow, at) == 8 then
  return { 'y', 0, 0, {}, {} }
end

for _, part in ipairs(parts) do
  local it, key = part.flow, prefix .. part.flow.number
  flow_set(it, 'generation', it.generation + 1)
  flow_set(it, 'rerun', it.generation)
  flow_set(it, 'rerun_from', part.is_first and at or nil)
  flow_set(it, 'touched', now)
  flow_set(it, 'over', nil)
  if (tonumber(it.deadline) or now + 1) <= now then
    flow_set(it, 'deadline', nil)
  end
  for _, event in ipairs({ 'death', 'complete', 'success', 'settled' }) do
    flow_set(it, 'fired:' .. event, nil)
    if it['callback:' .. event] then
      flow_set(it, 'callback:' .. event, 'none')
    end
  end
  if not part.from then
    -- It begins when its turn has come, as it did before.
    for _, field in ipairs({ 'committed', 'cancelled', 'expired', 'abandoned' }) do
      flow_set(it, field, nil)
    end
    flow_set(it, 'held', now)
    redis.call('ZREM', todo, 'stop ' .. it.number)
  end
  for first = 1, #part.members, 100 do
    local write, runs, late = {}, {}, {}
    local some = { unpack(part.members, first, math.min(first + 99, #part.members)) }
    for m, member in ipairs(some) do
      local state = part.states[first + m - 1]
      write[4 * m - 3], write[4 * m - 2], write[4 * m - 1], write[4 * m] = 'SET', 'u4', '#' .. member, 1
      runs[2 * m - 1], runs[2 * m] = member, it.generation
      late[m] = 'late ' .. it.number .. ' ' .. member
      if state > 0 then
        flow_count(it, state, -1)
      end
      flow_count(it, 1, 1)
      flow_tolerate(prefix, it, member, state, 1)
    end
    redis.call('BITFIELD', key .. ':states', unpack(write))
    redis.call('HSET', key .. ':runs', unpack(runs))
    redis.call('HDEL', key .. ':signals', unpack(some))
    redis.call('ZREM', todo, unpack(late))
  end
  flow_save(prefix, it)
end
redis.call('ZADD', todo, 0, 'nodes ' .. number .. ' 0')
for _, part in ipairs(parts) do
  if part.from then
    flow_rules(todo, prefix, flow_load(prefix, part.flow.number), now)
  end
end
return { 'a', tonumber(flow.generation), total, {}, flow_claim(todo, prefix, now) }
