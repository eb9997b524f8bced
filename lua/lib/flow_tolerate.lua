-- flow_tolerate: a member of a flow has gone from one state to another: a node that may fail is counted while it is dead, removed
-- or doomed, so that the rules leave it out.
-- needs: flow_set
local function flow_tolerate(prefix, flow, number, from, to)
  if not flow.may then
    return
  end
  local function is_bad(state)
    return state == 5 or state == 6 or state == 10 or state == 12
  end
  local before = is_bad(from) ~= is_bad(to) and redis.call('HGET', prefix .. flow.number .. ':before', number)
  if before and string.sub(before, 1, 1) == '?' then
    flow_set(flow, 'tolerated', (tonumber(flow.tolerated) or 0) + (is_bad(to) and 1 or -1))
  end
end
