-- is_empty: whether a queue has no tasks. holders are the keys of its lists and sets, which Redis deletes with
-- their last entry; then come its groups. A group that is listed and has no tasks is unlisted, up to 100 of
-- them per call; while there are more, the queue does not count as empty.
local function is_empty(prefix, holders, groups)
  for _, key in ipairs(holders) do
    if redis.call('EXISTS', key) == 1 then
      return false
    end
  end
  for _, group in ipairs(redis.call('SSCAN', groups, 0, 'COUNT', 100)[2]) do
    if redis.call('EXISTS', prefix .. 'g:' .. group) == 1 then
      return false
    end
    redis.call('SREM', groups, group)
  end
  return redis.call('EXISTS', groups) == 0
end
