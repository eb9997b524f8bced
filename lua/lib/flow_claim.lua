-- flow_claim: what is to be done for the flows of a tree, up to 25 entries that nobody has claimed, or a mebibyte of
-- messages, for ten seconds. An entry is carried out by whoever claims it, and then taken out by flow_carried. What is stored
-- because of it may be stored for half an hour, by the clock of another node of a cluster: store_once remembers for an hour at
-- least, so nothing is stored twice as long as the clocks of the two differ by less than half an hour.
-- RETURNS the unix second after which nothing may be stored because of it; for each entry its text, and the encoded message of the callback
--   or node that it names, or nothing
local function flow_claim(todo, prefix, now)
  local claimed, until_then, bytes, claims = { now + 1800 }, string.format('%d', now + 10), 0, {}
  for _, entry in ipairs(redis.call('ZRANGEBYSCORE', todo, '-inf', now, 'LIMIT', '0', '25')) do
    local kind, flow, what = string.match(entry, '^(%a+) (%d+) (%w+)')
    local message
    if kind == 'call' then
      message = redis.call('HGET', prefix .. flow .. ':about', 'message:' .. what)
    elseif kind == 'run' or kind == 'late' then
      message = redis.call('HGET', prefix .. flow .. ':messages', what)
    end
    message = message or ''
    claims[#claims + 1] = until_then
    claims[#claims + 1] = entry
    claimed[#claimed + 1] = entry
    claimed[#claimed + 1] = message
    bytes = bytes + #message
    if bytes > 1048576 then
      break
    end
  end
  if #claims > 0 then
    redis.call('ZADD', todo, unpack(claims))
  end
  return claimed
end
