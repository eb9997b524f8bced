-- flow_join: add a server to a broadcast that has begun: one that has come later, or one that does the part of a server that is lost. It
-- gets a node of its own, which runs at once.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   2  number  the flow
--   3  server  its name
--   4  queue   its mailbox
--   5  member  the number that it gets, which is the next
--   6  msg     encoded task message, with the id of that member
--   7  name    of the node; empty for none
--   8  behalf  the member because of which it may join, and which has not ended: the node that waits for late joiners, or the lost one
--   9  lost    1 if that one is lost; else empty
--   10 most    how many servers there may be
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':messages', ':names', ':states', ':before', ':after', ':kids', ':signals'
-- RETURNS a letter, and what the caller has to do, see flow_claim. The letters:
--   a  added
--   s  the server has a part in it; nothing was written
--   c  the number is not the next, or it is still being made; nothing was written
--   d  it is over, cancelled or abandoned, or that member has ended; nothing was written
--   b  it has as many servers as it may; nothing was written
--   m  there is no such broadcast; nothing was written
-- needs: flow_claim flow_load flow_may_grow flow_move flow_reserve_numbers flow_rules flow_set
local todo = KEYS[1]
local prefix, number, server, queue, member = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local msg, name, behalf, lost, most = ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])

local now = tonumber(redis.call('TIME')[1])
local key = prefix .. number
local flow = flow_load(prefix, number)
local is_read, plan = pcall(cjson.decode, flow and redis.call('HGET', key .. ':about', 'broadcast') or '')
if not flow or not is_read or type(plan) ~= 'table' then
  return { 'm', {} }
end
for n = 1, #plan.servers do
  if plan.servers[n] == server then
    return { 's', {} }
  end
end
if not flow.committed or flow.next ~= member then
  return { 'c', {} }
elseif not flow_may_grow(prefix, flow, number .. ' ' .. behalf) then
  return { 'd', {} }
elseif #plan.servers >= most then
  return { 'b', {} }
end
if lost ~= '' then
  -- It may still come back and succeed; what else becomes of it does no harm.
  redis.call('HSET', key .. ':before', behalf, '?')
  flow_set(flow, 'may', 1)
  flow_move(prefix, flow, { behalf }, 'removed')
  plan.lost = plan.lost or {}
  plan.lost[#plan.lost + 1] = tonumber(behalf)
elseif plan.all then
  plan.quorum = plan.quorum + 1
end
plan.servers[#plan.servers + 1] = server
flow_reserve_numbers(prefix, flow, 1, queue, now, 2)
flow_set(flow, 'nodes', flow.next)
redis.call('HSET', key .. ':messages', member, msg)
if name ~= '' then
  redis.call('HSET', key .. ':names', name, member)
end
redis.call('HSET', key .. ':about', 'broadcast', cjson.encode(plan))
redis.call('ZADD', todo, 0, 'run ' .. number .. ' ' .. member)
flow_rules(todo, prefix, flow, now)
return { 'a', flow_claim(todo, prefix, now) }
