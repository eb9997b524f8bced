-- retry: let a task that failed wait for its next attempt.
--
-- Transition: active -> retry              Go: retryCmd
-- Differs from Go: fenced by owns (W09); a recoverer names the expiry it saw, so that it cannot hit a
-- task that somebody has taken again since (W33).
--
-- KEYS
--   1  active         asynq:{<queue>}:active           LIST
--   2  lease          asynq:{<queue>}:lease            ZSET
--   3  retry          asynq:{<queue>}:retry            ZSET
--   4  task           asynq:{<queue>}:t:<id>           HASH
--   5  processed      asynq:{<queue>}:processed        STRING
--   6  processed_day  asynq:{<queue>}:processed:<day>  STRING
--   7  failed         asynq:{<queue>}:failed           STRING
--   8  failed_day     asynq:{<queue>}:failed:<day>     STRING
-- ARGV
--   1  id         task id
--   2  expiries   lease expiries the worker has set; several are in blanks: " a b "; a recoverer names
--                 the one it saw
--   3  run        token of the run; empty for a recoverer
--   4  side       1 or -1: the end of the active list to search first; 0: all of it
--   5  msg        encoded task message with the error
--   6  retry_at   unix second of the next attempt
--   7  counts     1 if this is a failure
--   8  expire_at  unix second at which a new day counter expires
--   9  crashes    new value of x_crashes, from a recoverer; empty if the attempt ended properly
-- RETURNS
--   1  waiting for retry
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
--   4  it waits with this very message already; nothing was written
-- needs: count_failures owns unlist_one write
local active, lease, retry, task = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, expiries, run, side = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local msg, retry_at, counts, expire_at, crashes = ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]

local verdict = owns(redis.call('ZSCORE', lease, id), task, expiries, run)
if verdict == '0' and redis.pcall('HGET', task, 'msg') == msg then
  verdict = '4'
end
if verdict ~= '1' then
  return verdict
end
write('ZADD', retry, retry_at, id)
unlist_one(active, side, id)
redis.call('ZREM', lease, id)
redis.call('HSET', task, 'msg', msg, 'state', 'retry')
redis.call('HDEL', task, 'owner', 'x_crashes')
if crashes ~= '' then
  redis.call('HSET', task, 'x_crashes', crashes)
end
if counts == '1' then
  count_failures(KEYS[5], KEYS[6], KEYS[7], KEYS[8], 1, expire_at)
end
return '1'
