-- remove_pending: take entries out of the pending list; the order of the others stays. Redis can take out of the
-- middle of a list only by searching for a value: so all entries get one that is no id, and one search
-- from the nearer end takes them out together.
local function remove_pending(pending, places)
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
