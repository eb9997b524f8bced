-- list_ready_groups: which groups have waited long enough, or are full; about 100 groups per call.
--
-- Transition: none; stage follows, for each group        Go: the first half of aggregationCheckCmd
-- Differs from Go: one call for many groups instead of one for each; says also which groups will be ready
-- soon, and when to come back; no group is ready while the queue is paused.
--
-- KEYS
--   1  groups        asynq:{<queue>}:groups  SET
--   2  paused        asynq:{<queue>}:paused  STRING
-- ARGV
--   1  group_prefix  asynq:{<queue>}:g:
--   2  cursor        0 to begin with; then the cursor of the last answer, until that is 0
--   3  now           unix time in seconds
--   4  grace         seconds a group has to be quiet
--   5  max_delay     seconds its oldest task may wait; 0 for any
--   6  max_size      how many tasks make a group full; 0 for any number
--   7  soon          unix second up to which groups count that will be ready
-- DERIVED
--   group_prefix .. group
-- RETURNS the next cursor, the unix second at which another group will be ready (-1 for none); then name,
--   second, name, second, ... of the groups that are, or will be up to soon
-- needs: ready_at
local groups, paused = KEYS[1], KEYS[2]
local group_prefix, cursor, now = ARGV[1], ARGV[2], tonumber(ARGV[3])
local grace, max_delay, max_size, soon = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])

if redis.call('EXISTS', paused) == 1 then
  return { '0', -1 }
end

local page = redis.call('SSCAN', groups, cursor, 'COUNT', 100)
local reply, soonest = { page[1], -1 }, nil
for _, name in ipairs(page[2]) do
  local at = ready_at(group_prefix .. name, grace, max_delay, max_size)
  if at and at <= soon then
    reply[#reply + 1] = name
    reply[#reply + 1] = at
  end
  if at and at > now and (not soonest or at < soonest) then
    soonest = at
  end
end
reply[2] = soonest or -1
return reply
