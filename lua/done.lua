-- done: delete tasks that succeeded, 1 to 100 per call.
--
-- Transition: active -> (deleted)          Go: doneCmd, doneUniqueCmd
-- Differs from Go: fenced by owns (W09); all is checked before anything is written (W53); the list is
-- not searched to its end for each id (W02).
--
-- KEYS
--   1  active     asynq:{<queue>}:active  LIST
--   2  lease      asynq:{<queue>}:lease   ZSET
--   3  outcomes   asynq:{<queue>}:x:outcomes:<who>     LIST; this and the next only with an entry
--   4  lists      asynq:{<queue>}:x:outcome-lists      SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  day        UTC day of the counters, YYYY-MM-DD
--   3  expire_at  unix second at which a new day counter expires
--   4  side       of a lone task 1 or -1: the end of the active list to search first; empty for several
--   5  entry      what members of flows tell (see tell): stamp and outcome; empty if none of the tasks is one
--   then for each task
--   +1 id         task id
--   +2 expiries   lease expiries the worker has set; several stand between spaces: " a b "
--   +3 run        token of the run, when the call may have been sent before; empty otherwise
--   +4 lock       name of its lock; empty for none
-- DERIVED
--   the locks, prefix .. 'processed', and that of the day
-- RETURNS one letter for each task
--   a  deleted and counted
--   o  the run belongs to somebody else by now; nothing was written
--   m  the task is gone; nothing was written
-- needs: finish leave_active
local active, lease, outcomes, lists = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local prefix, day, expire_at, side, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

if entry ~= '' then
  -- needs: can_tell
  can_tell(outcomes, lists)
end

local words, ids, numbers = leave_active(active, lease, side, 6, 4)
finish(ids, numbers, nil, nil, prefix, 6, 4, day, expire_at, 'done', entry, outcomes, lists)
return words
