-- flow_count: so many members more, or fewer, of a flow are in a state.
-- needs: flow_set
local function flow_count(flow, state, by)
  flow_set(flow, 'c' .. state, (tonumber(flow['c' .. state]) or 0) + by)
end
