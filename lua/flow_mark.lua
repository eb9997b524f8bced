-- flow_mark: note that all members of a flow are there, that it is cancelled, or that an addition is complete.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  what    committed, cancelled or added
--   4  key     the key of the addition; empty for the others
-- DERIVED
--   prefix .. number .. ':flow', ':keys', ':states', and those of its ancestors
-- RETURNS a letter, and what the caller has to do, see flow_claim. The letters:
--   a  noted
--   s  it was noted before, or is committed when its turn comes; nothing was written, but for the claim of what a cancelation has left
--   d  it is over, or was cancelled or abandoned; nothing was written
--   m  there is no such flow, or no such addition; nothing was written
-- needs: flow_claim flow_count flow_load flow_rules flow_save flow_set
local todo = KEYS[1]
local prefix, number, what, key = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local now = tonumber(redis.call('TIME')[1])
local flow = flow_load(prefix, number)
if not flow then
  return { 'm', {} }
end
if what == 'added' then
  local keys = prefix .. number .. ':keys'
  local known = redis.call('HGET', keys, 'add:' .. key)
  if not known then
    return { 'm', {} }
  elseif string.sub(known, -1) == '+' then
    return { 's', {} }
  end
  redis.call('HSET', keys, 'add:' .. key, known .. '+')
  return { 'a', {} }
end
if flow[what] or what == 'committed' and flow.held then
  -- Whoever has cancelled it may have died before it was done.
  return { 's', what == 'cancelled' and flow_claim(todo, prefix, now) or {} }
elseif flow.over or flow['fired:success'] or flow.cancelled or flow.abandoned then
  return { 'd', {} }
end
flow_set(flow, what, now)
flow_set(flow, 'touched', now)
local turn = what == 'cancelled' and flow.held
  and redis.call('BITFIELD', prefix .. flow.parent .. ':states', 'GET', 'u4', '#' .. flow.at)[1]
if turn == 1 then
  -- It ends before its turn has come.
  local parent = flow_load(prefix, flow.parent)
  redis.call('BITFIELD', prefix .. flow.parent .. ':states', 'SET', 'u4', '#' .. flow.at, 2)
  flow_count(parent, 1, -1)
  flow_count(parent, 2, 1)
  flow_save(prefix, parent)
  flow_set(flow, 'held', nil)
end
local has_todo = what == 'cancelled' or flow.nodes
if has_todo then
  redis.call('ZADD', todo, 0, what == 'cancelled' and 'stop ' .. number or 'nodes ' .. number .. ' 0')
end
return { 'a', (flow_rules(todo, prefix, flow, now) or has_todo) and flow_claim(todo, prefix, now) or {} }
