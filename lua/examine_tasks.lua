-- examine_tasks: where tasks are, and what their hashes say, 1 to 100 per call.
--
-- Transition: none                         Go: none
-- Searches the lists for each task: the longer they are, the fewer should be asked about in one call.
--
-- KEYS
--   1  pending     asynq:{<queue>}:pending           LIST
--   2  active      asynq:{<queue>}:active            LIST
--   3  lease       asynq:{<queue>}:lease             ZSET
--   4  scheduled   asynq:{<queue>}:scheduled         ZSET
--   5  retry       asynq:{<queue>}:retry             ZSET
--   6  archived    asynq:{<queue>}:archived          ZSET
--   7  completed   asynq:{<queue>}:completed         ZSET
--   8  sets        asynq:{<queue>}:aggregation_sets  ZSET
--   9  aggregated  asynq:{<queue>}:x:aggregated      SET
-- ARGV
--   1  prefix      asynq:{<queue>}:
--   then for each task
--   +1 id          task id
--   +2 count       how many names follow
--   +3 group       names of groups in which it was seen
-- DERIVED
--   prefix .. 't:' .. id, prefix .. 'g:' .. group, and the members of sets and aggregated
-- RETURNS for each task what lib/examine_task.lua says
-- needs: examine_task nth
local pending, active, lease, scheduled, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local archived, completed, sets, aggregated = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local prefix = ARGV[1]

local holders = { pending = pending, active = active, lease = lease, staged = sets, aggregated = aggregated }
holders.sets = { scheduled, retry, archived, completed }

local reply, at = {}, 2
while at < #ARGV do
  local id, count = nth(ARGV, at, 2, 1)
  reply[#reply + 1] = examine_task(holders, prefix, id, { nth(ARGV, at + 2, count, 1) })
  at = at + 2 + count
end
return reply
