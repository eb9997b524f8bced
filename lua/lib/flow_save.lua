-- flow_save: write what was changed in a flow.
local function flow_save(prefix, flow)
  local key = prefix .. flow.number .. ':flow'
  local set, gone = {}, {}
  for field in pairs(flow.changed) do
    local value = flow[field]
    if value == nil then
      gone[#gone + 1] = field
    else
      set[#set + 1] = field
      -- What Redis makes of a number takes four times as long.
      set[#set + 1] = type(value) == 'number' and string.format('%d', value) or value
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
