-- flow_set: change a field of a flow in memory; nil deletes it.
local function flow_set(flow, field, value)
  flow[field] = value
  flow.changed[field] = true
end
