-- stage: take the tasks of a group that is ready into a set, to be aggregated; up to 500 of them, or all
-- at once.
--
-- Transition: aggregating stays aggregating        Go: aggregationCheckCmd
-- Differs from Go: nothing is begun while the queue is paused; a set has a largest size even if max_size is off. If a
-- group has more tasks than the set may have, at most 500 are moved; the same call again moves more into the same set.
--
-- KEYS
--   1  group      asynq:{<queue>}:g:<group>           ZSET
--   2  groups     asynq:{<queue>}:groups              SET
--   3  set        asynq:{<queue>}:g:<group>:<uuid>    ZSET
--   4  sets       asynq:{<queue>}:aggregation_sets    ZSET
--   5  paused     asynq:{<queue>}:paused              STRING
-- ARGV
--   1  name       group name
--   2  now        unix time in seconds
--   3  grace      seconds a group has to be quiet
--   4  max_delay  seconds its oldest task may wait; 0 for any
--   5  max_size   how many tasks make a group full; 0 for any number
--   6  most       how many tasks the set may have
--   7  deadline   unix second at which the aggregation counts as lost
-- RETURNS how many tasks the set has, 0 when the group is not ready, and how many are left in the group
-- needs: ready_at write
local group, groups, set, sets, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local name, now, grace, max_delay, max_size = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local most, deadline = tonumber(ARGV[6]), ARGV[7]

local held = 0
if redis.call('ZSCORE', sets, set) then
  held = redis.call('ZCARD', set)
end
if held == 0 then
  if redis.call('EXISTS', paused) == 1 then
    return { 0, 0 }
  end
  local at = ready_at(group, grace, max_delay, max_size)
  if not at or at > now then
    return { 0, 0 }
  end
end
local size = redis.call('ZCARD', group)
local room = most - held
if size == 0 or room <= 0 then
  return { held, size }
end

-- First of all: a set that is listed and not there is harmless.
write('ZADD', sets, deadline, set)
local taken
if held == 0 and size <= room then
  redis.call('RENAME', group, set)
  taken = size
else
  local members = redis.call('ZRANGE', group, 0, math.min(room, 500) - 1, 'WITHSCORES')
  local scored = {} -- at most 1000 words
  for n = 1, #members, 2 do
    scored[n], scored[n + 1] = members[n + 1], members[n]
  end
  taken = #members / 2
  redis.call('ZADD', set, unpack(scored))
  redis.call('ZREMRANGEBYRANK', group, 0, taken - 1)
end
if taken == size then
  redis.pcall('SREM', groups, name)
end
return { held + taken, size - taken }
