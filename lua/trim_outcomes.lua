-- trim_outcomes: remove outcomes that stand in the ledgers of their flows from the list of the one who told them, and unlist
-- a list that is empty. Sent twice, it removes them once.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  outcomes  asynq:{<queue>}:x:outcomes:<who>  LIST
--   2  lists     asynq:{<queue>}:x:outcome-lists   SET
-- ARGV
--   then for each entry, at most 400
--   +1 entry     as tell has written it
-- RETURNS how many were removed
local outcomes, lists = KEYS[1], KEYS[2]

local removed = 0
for _, entry in ipairs(ARGV) do
  removed = removed + redis.call('LREM', outcomes, 1, entry)
end
if redis.call('EXISTS', outcomes) == 0 then
  redis.call('SREM', lists, outcomes)
end
return removed
