-- ready_at: the unix second at which a group is to be aggregated, if nothing joins it until then; a group
-- that is full is ready at 0. Writes nothing.
-- RETURNS nil for a group without tasks, or a key that is none.
local function ready_at(group, grace, max_delay, max_size)
  local size = redis.pcall('ZCARD', group)
  if type(size) == 'table' or size == 0 then
    return nil
  end
  if max_size ~= '0' and size >= tonumber(max_size) then
    return 0
  end
  local at = redis.call('ZRANGE', group, -1, -1, 'WITHSCORES')[2] + grace
  if max_delay ~= '0' then
    at = math.min(at, redis.call('ZRANGE', group, 0, 0, 'WITHSCORES')[2] + max_delay)
  end
  return math.ceil(at)
end
