-- examine_task: all that Redis holds about one task, at one moment; writes nothing.
--
-- holders are the keys of the queue's lists and sets, as the caller was given them; groups are the names of
-- groups in which the task was seen. The group in its own hash and the sets that are being aggregated (up to
-- 1,000) are looked at anyway. A key of another type holds nothing.
-- RETURNS the digest of the rest, type of the task's key, msg, state, group, '1' if the hash expires,
--   pending_since, lease, '1' if it only waits for its deletion; then for each entry:
--   key, score ('' in a list), '1' if the key is a set that is being aggregated. What is not there is ''.
-- needs: is_wrong_type
local function examine_task(holders, prefix, id, groups)
  local task = prefix .. 't:' .. id
  local key_type = redis.call('TYPE', task).ok
  local fields = key_type == 'hash' and redis.call('HMGET', task, 'msg', 'state', 'group', 'pending_since') or {}
  local lease = redis.pcall('ZSCORE', holders.lease, id)
  local found = {
    key_type,
    fields[1] or '',
    fields[2] or '',
    fields[3] or '',
    redis.call('PTTL', task) >= 0 and '1' or '',
    fields[4] or '',
    not is_wrong_type(lease) and lease or '',
    '',
  }
  local function add(key, score, staged)
    found[#found + 1] = key
    found[#found + 1] = score
    found[#found + 1] = staged
  end
  for _, list in ipairs({ holders.pending, holders.active }) do
    local places = redis.pcall('LPOS', list, id, 'COUNT', 0)
    for _ = 1, is_wrong_type(places) and 0 or #places do
      add(list, '', '')
    end
  end
  local looked = {}
  local function look(key)
    local score = not looked[key] and redis.pcall('ZSCORE', key, id)
    looked[key] = true
    if score and not is_wrong_type(score) then
      local deadline = redis.pcall('ZSCORE', holders.staged, key)
      add(key, score, deadline and not is_wrong_type(deadline) and '1' or '')
    end
  end
  for _, set in ipairs(holders.sets) do
    look(set)
  end
  local staged = redis.pcall('ZRANGE', holders.staged, 0, 999)
  for _, set in ipairs(is_wrong_type(staged) and {} or staged) do
    look(set)
  end
  for _, group in ipairs(groups) do
    look(prefix .. 'g:' .. group)
  end
  if fields[3] then
    look(prefix .. 'g:' .. fields[3])
  end
  local remains = redis.pcall('SRANDMEMBER', holders.aggregated, 100)
  for _, set in ipairs(is_wrong_type(remains) and {} or remains) do
    local score = redis.pcall('ZSCORE', set, id)
    if score and not is_wrong_type(score) then
      found[8] = '1'
    end
  end
  local lengths = {}
  for n = 1, #found do
    lengths[n] = #found[n]
  end
  table.insert(found, 1, redis.sha1hex(table.concat(lengths, ' ') .. ' ' .. table.concat(found)))
  return found
end
