-- flow_may_grow: whether members may be added to a flow; writes nothing. Before the commit anybody may add, but not to a node that is
-- skipped. After it only on behalf of a member or callback that is not over, and lies in the flow or in one below it: that is what keeps
-- the flow from being over meanwhile. behalf: '' for nobody, or the number of a flow and that of its member, or the name of its event.
local function flow_may_grow(prefix, flow, behalf)
  if flow.cancelled or flow.abandoned or flow['fired:success'] then
    return false
  elseif flow.held and redis.call('BITFIELD', prefix .. flow.parent .. ':states', 'GET', 'u4', '#' .. flow.at)[1] == 8 then
    return false
  elseif not flow.committed then
    return true
  end
  local below, member = string.match(behalf, '^(%d+) (%w+)$')
  if not below then
    return false
  end
  if tonumber(member) then
    local state = redis.call('BITFIELD', prefix .. below .. ':states', 'GET', 'u4', '#' .. member)[1]
    if state ~= 2 and state ~= 3 then
      return false
    end
  else
    local callback = redis.call('HGET', prefix .. below .. ':flow', 'callback:' .. member)
    if callback ~= 'due' and callback ~= 'sent' then
      return false
    end
  end
  for _ = 1, 1000 do
    if below == flow.number then
      return true
    end
    below = redis.call('HGET', prefix .. below .. ':flow', 'parent')
    if not below then
      return false
    end
  end
  return false
end
