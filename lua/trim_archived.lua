-- trim_archived: delete archived tasks that are too old or too many.
--
-- Transition: archived -> (deleted)        Go: part of archiveCmd
-- Differs from Go: also done by the janitor, so that an idle queue does not keep them for ever (W48).
--
-- KEYS
--   1  archived     asynq:{<queue>}:archived  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  cutoff       archived tasks of this second or earlier are too old
--   3  max          how many to keep
--   4  limit        how many to delete, at most 25 per call
-- DERIVED
--   task_prefix .. id, and the locks they own
-- RETURNS how many were deleted
-- needs: trim
local archived, task_prefix = KEYS[1], ARGV[1]
local cutoff, max, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

return trim(archived, task_prefix, cutoff, max, limit)
