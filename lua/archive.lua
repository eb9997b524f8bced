-- archive: give up on active tasks and keep them for inspection, 1 to 100 per call.
--
-- Transition: active -> archived           Go: archiveCmd
-- Differs from Go: as retry; and old archived tasks are trimmed after the step, at most 25 per call,
-- with their locks, so that a large backlog can neither fail the step (W15) nor hit its own entry (W16).
--
-- KEYS
--   1  active     asynq:{<queue>}:active    LIST
--   2  lease      asynq:{<queue>}:lease     ZSET
--   3  archived   asynq:{<queue>}:archived  ZSET
--   4  outcomes   asynq:{<queue>}:x:outcomes:<who>     LIST; this and the next only with an entry
--   5  lists      asynq:{<queue>}:x:outcome-lists      SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  day        UTC day of the counters, YYYY-MM-DD
--   3  expire_at  unix second at which a new day counter expires
--   4  side       of a lone task 1 or -1: the end of the active list to search first; empty for several
--   5  cutoff     archived tasks of this second or earlier are too old
--   6  max        how many archived tasks to keep
--   7  entry      what members of flows tell (see tell): stamp and outcome; a second line: what follows a lone task;
--                 empty if there is neither
--   then for each task
--   +1 id         task id
--   +2 expiries   lease expiries the worker has set; several stand between spaces: " a b "
--   +3 run        token of the run
--   +4 lock       the lock that ends with the task; empty for one that stays
--   +5 msg        encoded task message with the error
--   +6 score      unix time in seconds
--   +7 field      empty
--   +8 value      empty
--   +9 attempt    what is remembered of it; empty for nothing
-- DERIVED
--   prefix .. 't:' .. id of trimmed tasks, and the locks these own; prefix .. 'processed', prefix .. 'failed',
--   and those of the day
-- RETURNS one letter for each task
--   a  archived
--   o  the run belongs to somebody else by now; nothing was written
--   m  the task is gone; nothing was written
--   s  it is archived with this very message already; nothing was written
-- needs: finish leave_active trim
local active, lease, archived, outcomes, lists = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, day, expire_at, side = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local cutoff, max, entry = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

if entry ~= '' then
  -- needs: can_tell
  can_tell(outcomes, lists)
end

-- A set of another type is an error before anything was written.
redis.call('ZCARD', archived)

local words, ids, numbers = leave_active(active, lease, side, 8, 9, 'archived', false, 'owner', 'x_crashes')
finish(ids, numbers, 'archived', archived, prefix, 8, 9, day, expire_at, 'failed', entry, outcomes, lists)
if ids then
  trim(archived, prefix .. 't:', cutoff, max, 25, ids)
end
return words
