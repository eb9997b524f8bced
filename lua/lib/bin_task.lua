-- bin_task: what delete_task does, but the hash is kept under another name, for a time, with what is needed to put the task back:
-- its score, and until when it holds its lock. score is '' for a task in a list. One that was in no place of its state (false) comes
-- back as archived, where somebody looks at it.
-- needs: holds_lock lock_of
local function bin_task(task_prefix, id, bin, piece, score, now_ms, keep, keep_ids)
  local binned = bin .. id
  -- First of all: Redis refuses what needs memory only as long as the script has written nothing, and refuses no RENAME.
  redis.call('RENAME', task_prefix .. id, binned)
  redis.call('EXPIRE', binned, keep)
  redis.call('RPUSH', piece, id)
  redis.call('EXPIRE', piece, keep_ids)
  if not score then
    redis.call('HSET', binned, 'state', 'archived', 'x_bin_score', math.floor(now_ms / 1000))
  elseif score ~= '' then
    redis.call('HSET', binned, 'x_bin_score', score)
  end
  local lock = lock_of(binned)
  if lock ~= '' and holds_lock(lock, id) then
    local left = redis.call('PTTL', lock)
    redis.call('HSET', binned, 'x_bin_lock', left < 0 and 'inf' or string.format('%.0f', now_ms + left))
    redis.call('DEL', lock)
  end
end
