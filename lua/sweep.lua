-- sweep: delete what is left of a queue that has no tasks any more, 1 to 100 keys per call: hashes whose id is
-- in no list, locks whose task is gone, counters and the like.
--
-- Transition: none        Go: none (all of this is left behind, W26)
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
--   then for each
--   +1 key        any other key of the queue
-- ARGV
--   1  prefix     asynq:{<queue>}:
-- DERIVED
--   prefix .. 'g:' .. group, prefix .. 't:' .. id of the holder of a lock, and the lock of a task
-- RETURNS 1; 0 when the queue has tasks, and nothing of them was written
-- needs: delete_task is_empty is_wrong_type
local pending, active, scheduled, retry, archived = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local completed, sets, groups, prefix = KEYS[6], KEYS[7], KEYS[8], ARGV[1]

if not is_empty(prefix, { pending, active, scheduled, retry, archived, completed, sets }, groups) then
  return 0
end
local tasks, locks = prefix .. 't:', prefix .. 'unique:'
for _, key in ipairs({ unpack(KEYS, 9) }) do
  if string.sub(key, 1, #tasks) == tasks then
    delete_task(tasks, string.sub(key, #tasks + 1))
  elseif string.sub(key, 1, #locks) == locks then
    local holder = redis.pcall('GET', key)
    if not is_wrong_type(holder) and holder and redis.call('EXISTS', tasks .. holder) == 0 then
      redis.call('DEL', key)
    end
  else
    redis.call('UNLINK', key)
  end
end
return 1
