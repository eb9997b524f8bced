-- leave_active: the tasks of a call whose runs still belong to the caller leave `active` and `lease`, and fields of their
-- hashes are cleared (none where they are deleted right after).
--
-- The keys of the tasks are the last of KEYS, so that Redis refuses a call before it does anything where a user may not
-- touch one of them. Each run has its arguments from `first` on, of which the first three are id, expiries, run (see owns). where: see
-- remove_active. `to` is the state they leave for. Whether a call like this one has brought a task there before is told by
-- its message, the fifth argument. With `recovered` a task has to say that it is active: a lease may have been left behind.
-- RETURNS a letter for each run, as owns, or s: it was ended before with this very message; and for `finish` the ids of
--   those that have left (nil for none; of a lone one its id, which spares a tenth) and, if these are not all, their numbers
-- needs: owns remove_active
local function leave_active(active, lease, where, first, each, to, recovered, ...)
  local EXPIRIES, RUN, MSG = 1, 2, 4 -- behind the id
  local args, is_lone = ARGV, #ARGV == first + each - 1
  local leased, words, ids, seen, numbers
  if not is_lone then
    words, ids, seen = {}, {}, {}
    local asked = {}
    for at = first, #args, each do
      asked[#asked + 1] = args[at]
    end
    leased = redis.call('ZMSCORE', lease, unpack(asked))
  end
  local keys, others, n = KEYS, #KEYS - (#args - first + 1) / each, 0
  for at = first, #args, each do
    n = n + 1
    local id, expiry, word = args[at], nil, nil
    local task = keys[others + n]
    if is_lone then
      expiry = redis.call('ZSCORE', lease, id)
    else
      expiry = leased[n]
    end
    if seen and seen[id] then
      word = to and seen[id] == args[at + MSG] and 's' or 'o'
    else
      word = owns(expiry, task, args[at + EXPIRIES], args[at + RUN])
      if word == 'o' and to and not recovered and redis.pcall('HGET', task, 'msg') == args[at + MSG] then
        -- The message of a task that is archived may be the one it had.
        word = (to ~= 'archived' or redis.call('HGET', task, 'state') == to) and 's' or 'o'
      elseif word == 'a' and recovered then
        local state = redis.pcall('HGET', task, 'state')
        word = state == 'active' and 'a' or state and 'o' or 'm'
      end
    end
    if word == 'a' and ... then
      local cleared = redis.pcall('HDEL', task, ...)
      if type(cleared) == 'table' then
        if not string.find(cleared.err, 'WRONGTYPE', 1, true) then
          redis.call('HDEL', task, ...) -- Redis refuses to write: at the first write or not at all
        end
        word = 'o' -- a key of another type stands where the task was
      end
    end
    if is_lone then
      if word == 'a' then
        remove_active(active, lease, id, where)
        return word, id
      end
      return word
    end
    words[n] = word
    if word == 'a' then
      seen[id] = args[at + MSG] or true
      ids[#ids + 1] = id
      if numbers then
        numbers[#ids] = n
      end
    elseif not numbers then
      numbers = {}
      for before = 1, #ids do
        numbers[before] = before
      end
    end
  end
  if #ids > 0 then
    remove_active(active, lease, ids, type(where) == 'number' and where)
  end
  return table.concat(words), ids[1] and ids, numbers
end
