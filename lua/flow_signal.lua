-- flow_signal: what a node has waited for that is a signal was said, or its time is over.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  node    its number there
--   4  what    given or declined by somebody; succeed, skip or fail: what becomes of it when its time is over; wait: its turn
--              has come, and its time begins
--   5  text    what was said, which is kept for those that wait for it; of wait the seconds until its time is over
-- DERIVED
--   prefix .. number .. ':flow', ':states', ':signals', ':before', ':after', ':kids', and those of its ancestors
-- RETURNS a letter, and what the caller has to do, see flow_claim. The letters:
--   a  noted
--   s  it has ended before, or waits once more; nothing was written
--   d  the flow is over, or was cancelled or abandoned; nothing was written
--   m  there is no such flow; nothing was written
-- needs: flow_claim flow_load flow_move flow_rules flow_set flow_walk
local todo = KEYS[1]
local prefix, number, node, what, text = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local now = tonumber(redis.call('TIME')[1])
local late = 'late ' .. number .. ' ' .. node
local flow = flow_load(prefix, number)
if not flow then
  return { 'm', {} }
end
local state = redis.call('BITFIELD', prefix .. number .. ':states', 'GET', 'u4', '#' .. node)[1]
local is_said = what == 'given' or what == 'declined'
local is_closed = flow.cancelled or flow.abandoned or flow['fired:success']
local has_ended = state == 4 or state == 8 and what == 'declined' or state ~= 2 and not is_said
if has_ended or is_closed then
  redis.call('ZREM', todo, late)
  return { has_ended and 's' or 'd', {} }
elseif what == 'wait' then
  redis.call('ZADD', todo, 'NX', now + tonumber(text), late)
  return { 'a', {} }
elseif not is_said and (tonumber(redis.call('ZSCORE', todo, late)) or math.huge) > now + 10 then
  -- A claim is for ten seconds. Whoever made this one was held up, and the node was run again meanwhile: it waits once more.
  return { 's', {} }
end
redis.call('ZREM', todo, late)
local outcome = ({ given = 'ok', succeed = 'ok', fail = 'dead' })[what] or 'skipped'
local moved, members = flow_move(prefix, flow, { node }, outcome)
if moved == 0 then
  return { 's', {} }
end
redis.call('HSET', prefix .. number .. ':signals', node, text)
flow_set(flow, 'touched', now)
local has_todo = flow_walk(todo, prefix, flow, members)
has_todo = flow_rules(todo, prefix, flow, now) or has_todo
return { 'a', has_todo and flow_claim(todo, prefix, now) or {} }
