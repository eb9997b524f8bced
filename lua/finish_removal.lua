-- finish_removal: delete what a queue without tasks still has.
--
-- Transition: none        Go: the last part of removeQueueCmd and removeQueueForceCmd
-- Differs from Go: the pause goes too (W26); nothing happens while the queue has tasks, also completed and
-- aggregating ones.
--
-- KEYS
--   1  pending    asynq:{<queue>}:pending           LIST
--   2  active     asynq:{<queue>}:active            LIST
--   3  scheduled  asynq:{<queue>}:scheduled         ZSET
--   4  retry      asynq:{<queue>}:retry             ZSET
--   5  archived   asynq:{<queue>}:archived          ZSET
--   6  completed  asynq:{<queue>}:completed         ZSET
--   7  sets       asynq:{<queue>}:aggregation_sets  ZSET
--   8  groups     asynq:{<queue>}:groups            SET
--   9  lease      asynq:{<queue>}:lease             ZSET
--   10 paused     asynq:{<queue>}:paused            STRING
--   11 removing   asynq:{<queue>}:x:removing        STRING
--   12 processed  asynq:{<queue>}:processed         STRING
--   13 failed     asynq:{<queue>}:failed            STRING
--   14 limits     asynq:{<queue>}:x:rules           STRING
-- ARGV
--   1  prefix     asynq:{<queue>}:
-- DERIVED
--   prefix .. 'g:' .. group
-- RETURNS 1; 0 when the queue has tasks, and nothing of them was written
-- needs: is_empty
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, sets, groups, lease, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local removing, processed, failed, limits, prefix = KEYS[11], KEYS[12], KEYS[13], KEYS[14], ARGV[1]

if not is_empty(prefix, { pending, active, scheduled, retry, archived, completed, sets }, groups) then
  return 0
end
redis.call('DEL', lease, paused, removing, processed, failed, limits)
return 1
