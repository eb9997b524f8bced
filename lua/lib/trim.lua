-- trim: delete archived tasks that are too old (score up to cutoff) or too many (beyond max), oldest
-- first, at most limit of them, with their hashes and the locks they still own. The tasks in spare are
-- left alone: they have just been archived, by somebody whose clock may be behind.
-- RETURNS how many were deleted.
-- needs: delete_task
local function trim(archived, task_prefix, cutoff, max, limit, spare)
  local victims = redis.call('ZRANGEBYSCORE', archived, '-inf', cutoff, 'LIMIT', 0, limit)
  local excess = redis.call('ZCARD', archived) - max
  if excess > #victims then
    victims = redis.call('ZRANGE', archived, 0, math.min(excess, limit) - 1)
  end
  local deleted, is_spared = 0, {}
  for _, id in ipairs(type(spare) == 'string' and { spare } or spare or {}) do
    is_spared[id] = true
  end
  for _, id in ipairs(victims) do
    if not is_spared[id] then
      delete_task(task_prefix, id)
      redis.call('ZREM', archived, id)
      deleted = deleted + 1
    end
  end
  return deleted
end
