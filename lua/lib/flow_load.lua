-- flow_load: the hash of a flow as a table of texts, or nil; what is changed in it is written by flow_save.
local function flow_load(prefix, number)
  local values = redis.call('HGETALL', prefix .. number .. ':flow')
  if #values == 0 then
    return nil
  end
  local flow = { number = number, changed = {} }
  for n = 1, #values, 2 do
    flow[values[n]] = values[n + 1]
  end
  return flow
end
