-- flow_fate: what the ends of others say of a node. Its edges are the numbers of members of its flow, each with what is wanted of it
-- behind it: nothing for success, ! for a death, * for an end, whatever it is. A ? before them all says that the node may fail.
-- RETURNS 2 if it is to run, 1 if it waits, 8 if what it needs cannot come any more; and how many edges it has
local function flow_fate(prefix, flow, number)
  local before = redis.call('HGET', prefix .. flow.number .. ':before', number)
  if not before then
    return 2, 0
  end
  local read, signs = {}, {}
  for parent, sign in string.gmatch(before, '(%d+)([!*]?)') do
    signs[#signs + 1] = sign
    local at = #read
    read[at + 1], read[at + 2], read[at + 3] = 'GET', 'u4', '#' .. parent
  end
  if #read == 0 then
    return 2, 0
  end
  local fate = 2
  for n, state in ipairs(redis.call('BITFIELD', prefix .. flow.number .. ':states', unpack(read))) do
    -- One that was never enqueued is not to come either.
    local is_over = state == 0 or state >= 4 and state <= 8
    local sign = signs[n]
    if not is_over then
      fate = fate == 8 and 8 or 1
    elseif sign == '' and state ~= 4 or sign == '!' and state ~= 5 and state ~= 6 then
      fate = 8
    end
  end
  return fate, #signs
end
