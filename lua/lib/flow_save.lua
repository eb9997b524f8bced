-- flow_save: write what was changed in a flow.
local function flow_save(prefix, flow)
  local key = prefix .. flow.number .. ':flow'
  local set, gone = {}, {}
  for field in pairs(flow.changed) do
    if flow[field] == nil then
      gone[#gone + 1] = field
    else
      set[#set + 1] = field
      set[#set + 1] = flow[field]
    end
  end
  if #set > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  flow.changed = {}
end
