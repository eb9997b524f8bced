-- flow_save: write what was changed in a flow.
local function flow_save(prefix, flow)
  local key = prefix .. flow.number .. ':flow'
  local set, gone, last = {}, {}, 0
  for field in pairs(flow.changed) do
    local value = flow[field]
    if value == nil then
      gone[#gone + 1] = field
    else
      -- What Redis makes of a number takes four times as long.
      set[last + 1], set[last + 2] = field, type(value) == 'number' and string.format('%d', value) or value
      last = last + 2
    end
  end
  if last > 0 then
    redis.call('HSET', key, unpack(set))
  end
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
  flow.changed = {}
end
