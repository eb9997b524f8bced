-- finish: end the runs of tasks that have left where they were (ids and numbers as leave_active returns them): they come
-- into the set of their new state, or are deleted where there is none; their locks are released; and they are counted.
--
-- The keys of the tasks are the last of KEYS. Each run has its arguments from `first` on: id, expiries, run, lock ('' for one that stays); where there is a state also
-- msg ('' to leave it as it is), score, and a field that is set with its value ('' for none). With nine arguments the last is
-- what is remembered of the attempt ('' for nothing): x_n counts these, and the last five stand in x_a0 to x_a4. What follows
-- a zero byte in it is its backtrace, for x_trace.
-- outcome: done, failed, or none for what is not counted. A new day counter lives until expire_at. A total that would pass
-- 2^63-1 starts again, as in asynq. A counter of another type is left alone: statistics never stand in the way of a task.
-- With an entry, and the keys it goes to, members of flows tell how they ended: see tell.
local function finish(ids, numbers, state, place, prefix, first, each, day, expire_at, outcome, entry, ...)
  if not ids then
    return
  end
  local LOCK, MSG, SCORE, FIELD, VALUE, ATTEMPT = 3, 4, 5, 6, 7, 8 -- behind the id
  local args, is_lone = ARGV, type(ids) == 'string'
  local keys, others = KEYS, #KEYS - (#args - first + 1) / each
  local ended, scores = is_lone and 1 or #ids, not is_lone and {}
  for k = 1, ended do
    local n = numbers and numbers[k] or k
    local at, task = first + each * (n - 1), keys[others + n]
    local id, lock = args[at], args[at + LOCK]
    if not state then
      if is_lone then
        redis.call('DEL', task)
      else
        scores[k] = task
      end
    else
      if args[at + MSG] == '' then
        redis.call('HSET', task, 'state', state)
      elseif args[at + FIELD] == '' then
        redis.call('HSET', task, 'msg', args[at + MSG], 'state', state)
      else
        redis.call('HSET', task, 'msg', args[at + MSG], 'state', state, args[at + FIELD], args[at + VALUE])
      end
      if each > ATTEMPT and args[at + ATTEMPT] ~= '' then
        -- HINCRBY would need another right, and fail on what is no number.
        local attempts = tonumber(redis.call('HGET', task, 'x_n')) or 0
        attempts = (attempts >= 0 and attempts < 2 ^ 52) and math.floor(attempts) or 0
        local entry, backtrace = args[at + ATTEMPT], nil
        local parted = string.find(entry, '\0', 1, true)
        if parted then
          entry, backtrace = string.sub(entry, 1, parted - 1), string.sub(entry, parted + 1)
        end
        redis.call('HSET', task, 'x_n', attempts + 1, 'x_a' .. attempts % 5, entry)
        if backtrace then
          -- With its number: one that a later attempt leaves behind is not taken for that one's.
          redis.call('HSET', task, 'x_trace', string.format('%d %s', attempts + 1, backtrace))
        end
      end
      if is_lone then
        redis.call('ZADD', place, args[at + SCORE], id)
      else
        scores[2 * k - 1], scores[2 * k] = args[at + SCORE], id
      end
    end
    if lock ~= '' then
      -- needs: release_lock
      release_lock(lock, id)
    end
  end
  if not is_lone and state then
    redis.call('ZADD', place, unpack(scores))
  elseif not is_lone then
    redis.call('DEL', unpack(scores))
  end
  -- As processed and, if they failed, as failed: both totals start again together.
  local counter, starts_again = outcome ~= 'none' and 'processed', false
  while counter do
    local total = prefix .. counter
    local of_day = total .. ':' .. day
    if redis.pcall('INCRBY', of_day, ended) == ended then
      redis.call('EXPIREAT', of_day, expire_at)
    end
    local sum = redis.pcall('INCRBY', total, ended)
    if starts_again or type(sum) == 'table' and sum.err and string.find(sum.err, 'overflow', 1, true) then
      redis.call('SET', total, ended)
      starts_again = true
    end
    counter = outcome == 'failed' and counter == 'processed' and 'failed'
  end
  if entry and entry ~= '' then
    -- needs: tell
    tell(is_lone and { ids } or ids, entry, ...)
  end
end
