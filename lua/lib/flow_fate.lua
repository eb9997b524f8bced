-- flow_fate: what the ends of others say of a node. Its edges are the numbers of nodes of its flow, each with what is wanted of it
-- behind it: nothing for success, ! for a death, * for an end, whatever it is. A ? before them all says that the node may fail.
-- RETURNS 2 if it is to run, 1 if it waits, 8 if what it needs cannot come any more; and how many edges were looked at
local function flow_fate(prefix, flow, number)
  local before = redis.call('HGET', prefix .. flow.number .. ':before', number)
  if not before then
    return 2, 0
  end
  -- The states of all nodes, two in a byte, unless that is more to copy than asking for each one saves.
  local key, nodes = prefix .. flow.number .. ':states', tonumber(flow.nodes)
  local states = #before * 100 > nodes and redis.call('GETRANGE', key, '0', string.format('%d', nodes / 2))
  local byte, fate, edges = string.byte, 2, 0
  for parent, sign in string.gmatch(before, '(%d+)([!*]?)') do
    edges = edges + 1
    local state
    if states then
      local low = parent % 2
      state = byte(states, (parent - low) / 2 + 1) or 0
      state = low == 0 and (state - state % 16) / 16 or state % 16
    else
      state = redis.call('BITFIELD', key, 'GET', 'u4', '#' .. parent)[1]
    end
    -- One that was never enqueued is not to come either.
    local is_over = state == 0 or state >= 4 and state <= 8
    if not is_over then
      fate = 1
    elseif sign == '' and state ~= 4 or sign == '!' and state ~= 5 and state ~= 6 then
      return 8, edges
    end
  end
  return fate, edges
end
