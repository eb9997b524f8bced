-- flow_nodes: describe nodes of a flow that is not committed: their tasks, names and edges. A second time writes the same.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  messages  asynq:x:{<root>}:<flow>:messages  HASH
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  queue   the queue of their tasks; empty where they are batches
--   then for each node, at most 25, by number
--   +1 node    its number
--   +2 name    empty for none
--   +3 msg     encoded task message; empty for a batch
--   +4 before  the members it waits for, see flow_fate; empty for none; "? " in front of them if it may fail
--   +5 after   the numbers of those that wait for it; empty for none
-- DERIVED
--   prefix .. number .. ':flow', ':names', ':before', ':after'
-- RETURNS one letter
--   a  described
--   s  the flow is committed; nothing was written
--   d  it was cancelled or abandoned; nothing was written
--   m  there is no such flow; nothing was written
-- needs: flow_load flow_save flow_set nth
local messages = KEYS[1]
local prefix, number, queue = ARGV[1], ARGV[2], ARGV[3]

local flow = flow_load(prefix, number)
if not flow then
  return 'm'
elseif flow.cancelled or flow.abandoned then
  return 'd'
elseif flow.committed then
  return 's'
end
local key = prefix .. number
for n = 1, (#ARGV - 3) / 5 do
  local node, name, msg, before, after = nth(ARGV, 4, 5, n)
  if n == 1 and queue ~= '' and flow.queue ~= queue then
    flow_set(flow, 'queue', queue)
    flow_set(flow, 'from:' .. node, queue)
  end
  if name ~= '' then
    redis.call('HSET', key .. ':names', name, node)
  end
  if msg ~= '' then
    redis.call('HSET', messages, node, msg)
  end
  if string.sub(before, 1, 1) == '?' then
    flow_set(flow, 'may', 1)
  end
  if before ~= '' then
    redis.call('HSET', key .. ':before', node, before)
  end
  if after ~= '' then
    redis.call('HSET', key .. ':after', node, after)
  end
end
flow_set(flow, 'touched', tonumber(redis.call('TIME')[1]))
flow_save(prefix, flow)
return 'a'
