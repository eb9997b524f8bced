-- remove_active: take a task (ids is its id) or tasks (a list of ids) out of `active` and `lease`. A deletion is the first
-- that it writes: then Redis lets the rest of a script happen when it is out of memory.
--
-- where: for a lone task '1' or '-1', the end of the list to search first; for tasks that were seen together a number,
-- how far from the tail that was; nil for others. A key of another type instead of `active` holds no ids, and the tasks
-- must not wait for it.
--
-- Redis can take out of a list only by searching for a value.
-- * Of a batch, the head of the list, where the youngest are, is written anew without them: some calls instead of one for
--   each id, and all there is to do for tasks that were short. The others are searched for from the head if most were
--   there, else from the tail, where the oldest are.
-- * Those that are still near the place where they were seen get a value that is no id, and one search from the tail
--   takes them out together. Of the others, which are few, every occurrence in the whole list goes, each by a search.
-- * For a lone task that may be near the tail, the hundred youngest are looked at before, so that an id at either end is
--   found soon, however many ids of others lie between.
local function remove_active(active, lease, ids, where)
  local is_near = type(where) == 'number'
  if type(ids) == 'string' and is_near then
    ids = { ids }
  elseif type(ids) == 'string' then
    redis.call('ZREM', lease, ids)
    if where == '-1' and type(redis.pcall('LPOS', active, ids, 'MAXLEN', 100)) == 'number' then
      where = '1'
    end
    redis.pcall('LREM', active, where, ids)
    return
  end

  local count = #ids
  redis.call('ZREM', lease, unpack(ids))
  local first = is_near and math.max(0, where - 100)
  local window = redis.pcall('LRANGE', active, is_near and -first - 300 or 0, is_near and -first - 1 or 4 * count - 1)
  if window.err then
    return
  end
  local leaving, staying, found, deepest = {}, {}, 0, 0
  for n = 1, count do
    leaving[ids[n]] = true
  end
  for n = #window, 1, -1 do
    local id = window[n]
    if is_near then
      -- A user without this right has each searched for.
      if leaving[id] ~= nil and not redis.pcall('LSET', active, n - 1 - #window - first, '').err then
        leaving[id] = false
        found = found + 1
      end
    elseif leaving[id] then
      leaving[id] = false
      found = found + 1
      deepest = math.max(deepest, n) -- from there on the list stays as it is
    elseif deepest > 0 then
      staying[#staying + 1] = id
    end
  end
  if is_near and found > 0 then
    redis.call('LREM', active, -found, '')
  elseif found > 0 then
    redis.call('LTRIM', active, deepest, -1)
    if #staying > 0 then
      redis.call('LPUSH', active, unpack(staying))
    end
  end
  local side = is_near and 0 or 2 * found > count and 1 or -1
  for n = 1, count do
    if leaving[ids[n]] then
      redis.pcall('LREM', active, side, ids[n])
    end
  end
end
