-- leave_set: take a task out of its set. A group that is empty now is no longer listed.
local function leave_set(set, id, groups, group)
  redis.call('ZREM', set, id)
  if group and redis.call('EXISTS', set) == 0 then
    redis.pcall('SREM', groups, group)
  end
end
