-- flow_walk: look again at the nodes that wait for members which have moved, and at those that wait for what is skipped
-- because of that: they are released, skipped, or wait again. With `from`, look at all nodes from that number on. What
-- takes longer than a call should goes on by an entry of `todo`. members: the number of each, and from where on in its
-- list of those that wait for it. The flow has to be saved afterwards.
--
-- A node moves by the states of those it waits for and by nothing else, so that looking once more does no harm.
-- RETURNS whether anything is to be done by the caller
-- needs: flow_count flow_fate
local function flow_walk(todo, prefix, flow, members, from)
  if not flow.nodes or not flow.committed or flow.cancelled or flow.abandoned or flow['fired:success'] then
    return false
  end
  local key = prefix .. flow.number
  local budget, due = 250, {}
  local function go_on(entry)
    due[#due + 1] = '0'
    due[#due + 1] = entry
  end
  local function look_at(number)
    local state = redis.call('BITFIELD', key .. ':states', 'GET', 'u4', '#' .. number)[1]
    budget = budget - 5
    if state ~= 1 and state ~= 8 then
      return
    elseif state == 8 and redis.call('HGET', key .. ':signals', number) then
      -- Somebody has said so.
      return
    end
    local fate, edges = flow_fate(prefix, flow, number)
    budget = budget - 10 - edges
    if fate == state then
      return
    end
    redis.call('BITFIELD', key .. ':states', 'SET', 'u4', '#' .. number, fate)
    flow_count(flow, state, -1)
    flow_count(flow, fate, 1)
    if fate == 2 then
      local kid = redis.call('HGET', key .. ':kids', number)
      local run = not kid and flow.rerun and redis.call('HGET', key .. ':runs', number)
      go_on(kid and 'nodes ' .. kid .. ' 0' or 'run ' .. flow.number .. ' ' .. number .. (run and ' ' .. run or ''))
    end
    if state == 8 or fate == 8 then
      members[#members + 1] = { number, 1 }
    end
  end

  local nodes = tonumber(flow.nodes)
  while from and from < nodes and budget > 0 do
    look_at(from)
    from = from + 1
  end
  if from and from < nodes then
    go_on('nodes ' .. flow.number .. ' ' .. from)
  end
  local n = 1
  while members[n] do
    local number, at = members[n][1], members[n][2]
    -- What is not looked at any more is not read either.
    local after = budget > 0 and redis.call('HGET', key .. ':after', number)
    while after and at and budget > 0 do
      local first, last = string.find(after, '%d+', at)
      at = first and last + 1
      if first then
        look_at(string.sub(after, first, last))
      end
    end
    if budget <= 0 and at then
      go_on('after ' .. flow.number .. ' ' .. number .. ' ' .. at)
    end
    n = n + 1
  end
  if #due > 0 then
    redis.call('ZADD', todo, unpack(due))
  end
  return #due > 0
end
