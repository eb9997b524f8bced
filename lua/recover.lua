-- recover: take tasks from workers that went silent; they wait for another attempt, or are archived. 1 to 100 per
-- call.
--
-- Transition: active -> retry, archived    Go: retryCmd and archiveCmd, for each task
-- Differs from Go: fenced by the lease expiry that the recoverer saw (W33), each task by itself; the active list is
-- searched once for all of them; at most 25 old archived tasks are trimmed as in archive.
--
-- KEYS
--   1  active     asynq:{<queue>}:active                LIST
--   2  lease      asynq:{<queue>}:lease                 ZSET
--   3  place      asynq:{<queue>}:retry or :archived    ZSET
--   4  outcomes   asynq:{<queue>}:x:outcomes:<who>     LIST; this and the next only with an entry
--   5  lists      asynq:{<queue>}:x:outcome-lists      SET
--   then for each task
--   +1 task       asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  day        UTC day of the counters, YYYY-MM-DD
--   3  expire_at  unix second at which a new day counter expires
--   4  state      retry or archived
--   5  at         how far from the tail of the active list they were seen
--   6  cutoff     archived tasks of this second or earlier are too old
--   7  max        how many archived tasks to keep
--   8  entry      what members of flows tell (see tell): stamp and outcome; a second line: what follows a lone task;
--                 empty if there is neither
--   then for each task
--   +1 id         task id
--   +2 expiries   the lease expiry that was seen
--   +3 run        token of the run; empty
--   +4 lock       the lock that ends with the task; empty for one that stays
--   +5 msg        encoded task message with the error
--   +6 score      its score in place
--   +7 field      x_crashes, or empty
--   +8 value      its new value
--   +9 attempt    what is remembered of it; empty for nothing
-- DERIVED
--   prefix .. 't:' .. id of trimmed tasks, and the locks these own; prefix .. 'processed', prefix .. 'failed',
--   and those of the day
-- RETURNS one letter for each task
--   a  it is where it should be, and counted as a failure
--   o  it is not active with this lease any more; nothing was written
--   m  the task is gone; nothing was written
-- needs: finish leave_active trim
local active, lease, place, outcomes, lists = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, day, expire_at, state, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local cutoff, max, entry = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8]

if entry ~= '' then
  -- needs: can_tell
  can_tell(outcomes, lists)
end

-- A set of another type is an error before anything was written.
redis.call('ZCARD', place)

local words, ids, numbers = leave_active(active, lease, at, 9, 9, state, true, 'owner', 'x_crashes')
finish(ids, numbers, state, place, prefix, 9, 9, day, expire_at, 'failed', entry, outcomes, lists)
if state == 'archived' and ids then
  trim(place, prefix .. 't:', cutoff, max, 25, ids)
end
return words
