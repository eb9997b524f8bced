-- archive: give up on an active task and keep it for inspection.
--
-- Transition: active -> archived           Go: archiveCmd
-- Differs from Go: as retry; and old archived tasks are trimmed after the step, at most 25 per call,
-- with their locks, so that a large backlog can neither fail the step (W15) nor hit its own entry (W16).
--
-- KEYS
--   1  active         asynq:{<queue>}:active           LIST
--   2  lease          asynq:{<queue>}:lease            ZSET
--   3  archived       asynq:{<queue>}:archived         ZSET
--   4  task           asynq:{<queue>}:t:<id>           HASH
--   5  processed      asynq:{<queue>}:processed        STRING
--   6  processed_day  asynq:{<queue>}:processed:<day>  STRING
--   7  failed         asynq:{<queue>}:failed           STRING
--   8  failed_day     asynq:{<queue>}:failed:<day>     STRING
-- ARGV
--   1  id           task id
--   2  expiries     lease expiries the worker has set; several are in blanks: " a b "; a recoverer names
--                   the one it saw
--   3  run          token of the run; empty for a recoverer
--   4  side         1 or -1: the end of the active list to search first; 0: all of it
--   5  msg          encoded task message with the error
--   6  now          unix time in seconds
--   7  expire_at    unix second at which a new day counter expires
--   8  cutoff       archived tasks of this second or earlier are too old
--   9  max          how many archived tasks to keep
--   10 task_prefix  asynq:{<queue>}:t:
-- DERIVED
--   task_prefix .. id of trimmed tasks, and the locks they own
-- RETURNS
--   1  archived
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
--   4  it is archived with this very message already; nothing was written
-- needs: count_failures owns trim unlist_one write
local active, lease, archived, task = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, expiries, run, side = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local msg, now, expire_at = ARGV[5], ARGV[6], ARGV[7]
local cutoff, max, task_prefix = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]

local verdict = owns(redis.call('ZSCORE', lease, id), task, expiries, run)
if verdict == '0' and redis.pcall('HGET', task, 'state') == 'archived' and redis.call('HGET', task, 'msg') == msg then
  verdict = '4'
end
if verdict ~= '1' then
  return verdict
end
write('ZADD', archived, now, id)
unlist_one(active, side, id)
redis.call('ZREM', lease, id)
redis.call('HSET', task, 'msg', msg, 'state', 'archived')
redis.call('HDEL', task, 'owner', 'x_crashes')
count_failures(KEYS[5], KEYS[6], KEYS[7], KEYS[8], 1, expire_at)
if tonumber(now) > cutoff then
  trim(archived, task_prefix, cutoff, max, 25, { [id] = true })
end
return '1'
