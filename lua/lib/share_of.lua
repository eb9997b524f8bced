-- share_of: the share of its rate at which a lane goes on whose handlers were told that it is too much, from the text that free_slots has
-- left: the share then, from which millisecond on it grows, and when it is whole again. Each time of the rate gives a tenth back.
-- RETURNS also that millisecond; nil where nobody was told so. Writes nothing.
local function share_of(text, rule, now)
  local share, from = string.match(text or '', '^([%d.]+) (%d+) %d+$')
  if not share then
    return 1
  end
  return math.min(share + math.floor(math.max(now - from, 0) / rule.per) / 10, 1), tonumber(from)
end
