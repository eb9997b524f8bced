-- retry: let tasks that failed wait for their next attempt, 1 to 100 per call.
--
-- Transition: active -> retry              Go: retryCmd
-- Differs from Go: fenced by owns (W09).
--
-- KEYS
--   1  active     asynq:{<queue>}:active  LIST
--   2  lease      asynq:{<queue>}:lease   ZSET
--   3  retry      asynq:{<queue>}:retry   ZSET
--   4  outcomes   asynq:{<queue>}:x:outcomes:<who>     LIST; this and the next only with an entry
--   5  lists      asynq:{<queue>}:x:outcome-lists      SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  day        UTC day of the counters, YYYY-MM-DD
--   3  expire_at  unix second at which a new day counter expires
--   4  side       of a lone task 1 or -1: the end of the active list to search first; empty for several
--   5  outcome    failed if this counts as a failure; else none
--   6  entry      what members of flows tell (see tell): stamp and outcome; empty if none of the tasks is one
--   then for each task
--   +1 id         task id
--   +2 expiries   lease expiries the worker has set; several stand between spaces: " a b "
--   +3 run        token of the run
--   +4 lock       empty: it stays
--   +5 msg        encoded task message with the error
--   +6 score      unix second of the next attempt
--   +7 field      empty
--   +8 value      empty
--   +9 attempt    what is remembered of it; empty for nothing
-- DERIVED
--   prefix .. 'processed', prefix .. 'failed', and those of the day
-- RETURNS one letter for each task
--   a  waiting for retry
--   o  the run belongs to somebody else by now; nothing was written
--   m  the task is gone; nothing was written
--   s  it waits with this very message already; nothing was written
-- needs: finish leave_active
local active, lease, retry, outcomes, lists = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, day, expire_at, side, outcome, entry = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if entry ~= '' then
  -- needs: can_tell
  can_tell(outcomes, lists)
end

-- A set of another type is an error before anything was written.
redis.call('ZCARD', retry)

local words, ids, numbers = leave_active(active, lease, side, 7, 9, 'retry', false, 'owner', 'x_crashes')
finish(ids, numbers, 'retry', retry, prefix, 7, 9, day, expire_at, outcome, entry, outcomes, lists)
return words
