-- write_result: store what a running task has to show so far.
--
-- Transition: active stays active          Go: WriteResult (a plain HSET)
-- Differs from Go: only for the run that has the task, so that a handler which outlives its task leaves
-- no hash behind (W14).
--
-- KEYS
--   1  task    asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  run     token of the run
--   2  offset  where the part of the message that can change begins, and
--   3  tail    that part, as it was taken
--   4  result  the bytes to store
-- RETURNS
--   1  stored
--   0  the run belongs to somebody else by now; nothing was written
--   2  the task is gone; nothing was written
local verdict = owns(KEYS[1], ARGV[1], ARGV[2], ARGV[3])
if verdict == '1' then
  redis.call('HSET', KEYS[1], 'result', ARGV[4])
end
return verdict
