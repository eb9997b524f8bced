-- write_result: store what a running task has to show so far.
--
-- Transition: active stays active          Go: WriteResult (a plain HSET)
-- Differs from Go: only for the run that has the task, so that a handler which outlives its task leaves
-- no hash behind (W14).
--
-- KEYS
--   1  lease     asynq:{<queue>}:lease   ZSET
--   2  task      asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  id        task id
--   2  expiries  lease expiries the worker has set; several are in blanks: " a b "
--   3  run       token of the run
--   4  result    the bytes to store
-- RETURNS
--   1  stored
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
-- needs: owns write
local verdict = owns(redis.call('ZSCORE', KEYS[1], ARGV[1]), KEYS[2], ARGV[2], ARGV[3])
if verdict == '1' then
  write('HSET', KEYS[2], 'result', ARGV[4])
end
return verdict
