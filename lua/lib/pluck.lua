-- spot: where ids are in the pending list, looking only around `at`, the place counted from the head at
-- which the first was seen: entries behind it shift as new tasks come in. Writes nothing.
local function spot(pending, ids, at)
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

-- strike: take entries out of the pending list; the order of the others stays. Redis can take out of the
-- middle of a list only by searching for a value: so all entries get one that is no id, and one search
-- from the nearer end takes them out together.
local function strike(pending, places)
  local count, place = 0, 0
  for _, at in pairs(places) do
    redis.call('LSET', pending, at, '')
    count, place = count + 1, at
  end
  if count > 0 then
    local nearer_head = 2 * place < redis.call('LLEN', pending)
    redis.call('LREM', pending, nearer_head and count or -count, '')
  end
end
