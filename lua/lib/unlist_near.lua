-- unlist_near: take ids out of the active list that were seen together, `at` places from its tail.
--
-- Redis can take out of the middle of a list only by searching for a value: so those that are still near there get
-- one that is no id, and one search from the tail takes them out together. Of the others, which are few, every
-- occurrence in the whole list goes, each by a search of its own. A key of another type holds no ids.
local function unlist_near(active, ids, at)
  local first = math.max(0, at - 100)
  local window = redis.pcall('LRANGE', active, -first - 300, -first - 1)
  if window.err then
    return
  end
  local leaving, found = {}, 0
  for n = 1, #ids do
    leaving[ids[n]] = true
  end
  for n = 1, #window do
    local id = window[n]
    -- A user without this right has each searched for.
    if leaving[id] ~= nil and not redis.pcall('LSET', active, n - 1 - #window - first, '').err then
      leaving[id] = false
      found = found + 1
    end
  end
  if found > 0 then
    redis.call('LREM', active, -found, '')
  end
  for n = 1, #ids do
    if leaving[ids[n]] then
      redis.call('LREM', active, 0, ids[n])
    end
  end
end
