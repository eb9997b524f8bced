-- unlist: take several ids out of the active list.
--
-- The head of the list, where the youngest are, is written anew without them: some calls instead of one for
-- each id, and all there is to do for tasks that were short. The others are searched for from the head if
-- most were there, else from the tail, where the oldest are. A key of another type holds no ids, and the
-- tasks must not wait for it.
local function unlist(active, ids)
  local head = redis.pcall('LRANGE', active, 0, 4 * #ids - 1)
  if head.err then
    return
  end
  local leaving, staying = {}, {}
  for n = 1, #ids do
    leaving[ids[n]] = true
  end
  -- From the deepest of them on, the list stays as it is.
  local found, deepest = 0, 0
  for n = #head, 1, -1 do
    if leaving[head[n]] then
      leaving[head[n]] = false
      found = found + 1
      deepest = math.max(deepest, n)
    elseif deepest > 0 then
      staying[#staying + 1] = head[n]
    end
  end
  if found > 0 then
    redis.call('LTRIM', active, deepest, -1)
    if #staying > 0 then
      redis.call('LPUSH', active, unpack(staying))
    end
  end
  local side = 2 * found > #ids and 1 or -1
  for n = 1, #ids do
    if leaving[ids[n]] then
      redis.pcall('LREM', active, side, ids[n])
    end
  end
end
