-- flow_unlink: delete the keys of a flow, the hash that says that there is one last.
local function flow_unlink(prefix, number)
  local key = prefix .. number
  redis.call('UNLINK', key .. ':messages', key .. ':names', key .. ':before', key .. ':after', key .. ':signals', key .. ':runs')
  redis.call('UNLINK', key .. ':about', key .. ':states', key .. ':keys', key .. ':kids', key .. ':flow')
end
