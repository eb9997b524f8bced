-- find_pending: where ids are in the pending list, looking only around `at`, the place counted from the head at
-- which the first was seen: entries behind it shift as new tasks come in. Writes nothing.
local function find_pending(pending, ids, at)
  local wanted, places = {}, {}
  for n = 1, #ids do
    wanted[ids[n]] = true
  end
  local first = math.max(0, at - 50)
  for n, id in ipairs(redis.call('LRANGE', pending, first, at + 349)) do
    if wanted[id] and not places[id] then
      places[id] = first + n - 1
    end
  end
  return places
end
