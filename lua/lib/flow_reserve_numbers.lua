-- flow_reserve_numbers: give out the next numbers of a flow for members in this state: 2, which are about to be enqueued in a
-- queue ('' for a child flow), and for a minute nobody wonders that some are not there yet; or 1, nodes.
-- RETURNS the first of them
-- needs: flow_count flow_set
local function flow_reserve_numbers(prefix, flow, count, queue, now, state)
  local states = prefix .. flow.number .. ':states'
  local first = tonumber(flow.next) or 0
  local last = first + count - 1
  -- Whole bytes at once, and the half ones at either end.
  local from, to = math.ceil(first / 2), math.floor((last + 1) / 2)
  if to > from then
    redis.call('SETRANGE', states, from, string.rep(string.char(17 * state), to - from))
  end
  if first % 2 == 1 then
    redis.call('BITFIELD', states, 'SET', 'u4', '#' .. first, state)
  end
  if last % 2 == 0 and last >= first then
    redis.call('BITFIELD', states, 'SET', 'u4', '#' .. last, state)
  end
  flow_set(flow, 'next', last + 1)
  flow_set(flow, 'touched', now)
  flow_count(flow, state, count)
  if queue ~= '' then
    flow_set(flow, 'adding', now + 60)
    if flow.queue ~= queue then
      flow_set(flow, 'queue', queue)
      flow_set(flow, 'from:' .. first, queue)
    end
  end
  return first
end
