-- flow_reserve: give out numbers for more members of a flow.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  keys    asynq:x:{<root>}:<flow>:keys  HASH
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  count   how many
--   4  queue   the queue of these members
--   5  key     of the addition: the same key gets the same numbers again; empty for none
--   6  behalf  who adds them, see flow_may_grow
-- DERIVED
--   prefix .. number .. ':flow', ':states'
-- RETURNS a letter; the first number; how many; whether they all were added before; and the states of those, as the bytes
--   that hold them. The letters:
--   a  given out
--   s  the addition is known; its numbers are held for another minute
--   d  the flow is closed; nothing was written
--   m  there is no such flow; nothing was written
-- needs: flow_load flow_may_grow flow_reserve_numbers flow_save flow_set
local keys = KEYS[1]
local prefix, number, count, queue = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local key, behalf = ARGV[5], ARGV[6]

local now = tonumber(redis.call('TIME')[1])
local flow = flow_load(prefix, number)
if not flow then
  return { 'm', 0, 0, 0, '' }
end
local known = key ~= '' and redis.call('HGET', keys, 'add:' .. key)
if known then
  local first, last, is_added = string.match(known, '^(%d+)-(%d+)(%+?)$')
  if is_added == '' and (flow.cancelled or flow.abandoned) then
    -- Those that were not stored before that are not to come after it.
    return { 'd', 0, 0, 0, '' }
  elseif is_added == '' then
    flow_set(flow, 'adding', now + 60)
    flow_save(prefix, flow)
  end
  local states = redis.call('GETRANGE', prefix .. number .. ':states', math.floor(first / 2), math.floor(last / 2))
  return { 's', tonumber(first), last - first + 1, is_added == '+' and 1 or 0, states }
elseif not flow_may_grow(prefix, flow, behalf) then
  return { 'd', 0, 0, 0, '' }
end
local first = flow_reserve_numbers(prefix, flow, count, queue, now, 2)
if key ~= '' then
  redis.call('HSET', keys, 'add:' .. key, first .. '-' .. first + count - 1)
end
flow_save(prefix, flow)
return { 'a', first, count, 0, '' }
