-- flow_count: so many members more, or fewer, of a flow are in a state.
-- needs: flow_set
local function flow_count(flow, state, by)
  -- A number that Lua joins to a text takes twice as long.
  local counter = string.format('c%d', state)
  flow_set(flow, counter, (tonumber(flow[counter]) or 0) + by)
end
