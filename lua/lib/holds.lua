-- holds: whether a set is still in the hands of the server that staged it: it is listed and has as many
-- tasks as that server knows of. Reclaiming takes tasks out of it, and nothing puts any in. Writes nothing.
local function holds(sets, set, count)
  return redis.call('ZSCORE', sets, set) and redis.call('ZCARD', set) == tonumber(count)
end
