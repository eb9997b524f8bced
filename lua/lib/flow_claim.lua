-- flow_claim: what is to be done for the flows of a tree, up to 25 entries that nobody has claimed, for ten seconds. An entry
-- is carried out by whoever claims it, and then taken out by flow_carried.
-- RETURNS the unix second until which it may be carried out; for each entry its text, and the encoded message of the callback
--   that it names, or nothing
local function flow_claim(todo, prefix, now)
  local claimed = { now + 8 }
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', todo, '-inf', now, 'LIMIT', 0, 25)) do
    redis.call('ZADD', todo, now + 10, entry)
    local flow, event = string.match(entry, '^call (%d+) (%a+) ')
    claimed[#claimed + 1] = entry
    claimed[#claimed + 1] = flow and redis.call('HGET', prefix .. flow .. ':about', 'message:' .. event) or ''
  end
  return claimed
end
