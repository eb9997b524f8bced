-- write_fields: store what a running task has to show so far: its result, how far it is, its log, where to go on; at most 4 fields.
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
--   2  expiries  lease expiries the worker has set; several stand between spaces: " a b "
--   3  run       token of the run
--   then for each field
--   +1 field     result, x_progress, x_log or x_cursor
--   +2 value     the bytes to store
-- RETURNS one letter
--   a  stored
--   o  the run belongs to somebody else by now; nothing was written
--   m  the task is gone; nothing was written
-- needs: owns write
local lease, task = KEYS[1], KEYS[2]
local id, expiries, run = ARGV[1], ARGV[2], ARGV[3]

local word = owns(redis.call('ZSCORE', lease, id), task, expiries, run)
if word == 'a' then
  write('HSET', task, unpack(ARGV, 4))
end
return word
