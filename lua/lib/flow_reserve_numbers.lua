-- flow_reserve_numbers: give out the next numbers of a flow for members that are about to be enqueued in a queue ('' for a
-- child flow). They count as sent from now on; for a minute nobody wonders that some are not there yet.
-- RETURNS the first of them
-- needs: flow_count flow_set
local function flow_reserve_numbers(prefix, flow, count, queue, now)
  local states = prefix .. flow.number .. ':states'
  local first = tonumber(flow.next) or 0
  local last = first + count - 1
  -- Whole bytes at once, and the half ones at either end.
  local from, to = math.ceil(first / 2), math.floor((last + 1) / 2)
  if to > from then
    redis.call('SETRANGE', states, from, string.rep('\34', to - from))
  end
  if first % 2 == 1 then
    redis.call('BITFIELD', states, 'SET', 'u4', '#' .. first, 2)
  end
  if last % 2 == 0 and last >= first then
    redis.call('BITFIELD', states, 'SET', 'u4', '#' .. last, 2)
  end
  flow_set(flow, 'next', last + 1)
  flow_set(flow, 'touched', now)
  flow_count(flow, 2, count)
  if queue ~= '' then
    flow_set(flow, 'adding', now + 60)
    if flow.queue ~= queue then
      flow_set(flow, 'queue', queue)
      flow_set(flow, 'from:' .. first, queue)
    end
  end
  return first
end
