-- flow_open: create a flow, the root of a tree or a child in another flow, and give out the numbers of its first members.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo      asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix    asynq:x:{<root>}:
--   2  parent_number  empty for a root
--   3  name      name of the child, by which a second call finds it; empty for none
--   4  behalf    of a child: who opens it, see flow_may_grow
--   5  count     how many numbers to give out
--   6  queue     the queue of these members
--   7  commit    1 if these are all its members; else empty
--   8  born      1 if the caller has chosen the id of the root: its second is then a part of the ids of its members
--   9  deadline  unix second at which it is cancelled if it is not over by then; 0 for never
--   10 linger    seconds for which it is kept when it is over; 0 for the default
--   11 nodes     1 if the numbers are those of nodes, which flow_nodes describes; else empty
--   12 at        of a child that is a node of its parent: its number there; it is held until its turn comes. Else empty
--   then for each text, at most eight
--   +1 field     description, tags, metadata, broadcast, or message:<event>
--   +2 text      the text; of a callback its encoded message
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':states', ':keys', ':kids' of the flow and its parent
-- RETURNS a letter; the number of the flow; the first number that was given out; the second at which the root was born, or
--   nothing; the second it is; and what the caller has to do, see flow_claim. The letters:
--   a  created
--   s  there is one of this id or name; nothing was written, but that it is not abandoned any more
--   d  the parent is closed; nothing was written
--   m  there is no such parent; nothing was written
-- needs: flow_claim flow_load flow_may_grow flow_reserve_numbers flow_rules flow_save flow_set
local todo = KEYS[1]
local prefix, parent_number, name, behalf = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local count, queue, commit, born = tonumber(ARGV[5]), ARGV[6], ARGV[7], ARGV[8]
local deadline, linger = tonumber(ARGV[9]), tonumber(ARGV[10])
local nodes, at = ARGV[11], ARGV[12]

local now = redis.call('TIME')[1]
local root = flow_load(prefix, '0')
local number, flow = '0', root
-- Somebody goes on with it. The nodes of a workflow are cancelled by now, and of a tree that is being forgotten parts are gone.
local function found(known)
  local claimed = {}
  if known.abandoned and not known.cancelled and not root.forgotten then
    flow_set(known, 'abandoned', nil)
    flow_set(known, 'touched', now)
    claimed = flow_rules(todo, prefix, known, now) and flow_claim(todo, prefix, now) or {}
  end
  return { 's', known.number, 0, root.born or '', now, claimed }
end
if parent_number == '' then
  if root then
    return found(root)
  end
else
  local parent = flow_load(prefix, parent_number)
  if not parent then
    return { 'm', '', 0, '', now, {} }
  end
  local known = name ~= '' and redis.call('HGET', prefix .. parent_number .. ':keys', 'child:' .. name)
  local may_grow = flow_may_grow(prefix, parent, behalf)
  local child = known and may_grow and flow_load(prefix, known)
  if child then
    return found(child)
  elseif known then
    return { 's', known, 0, root.born or '', now, {} }
  elseif not may_grow or at ~= '' and parent.committed then
    return { 'd', '', 0, '', now, {} }
  end
  if parent_number == '0' then
    root = parent
  end
  number = tostring(tonumber(root.flows) or 1)
  flow_set(root, 'flows', number + 1)
  local is_node = at ~= ''
  at = is_node and at or flow_reserve_numbers(prefix, parent, 1, '', now, 2)
  redis.call('HSET', prefix .. parent_number .. ':kids', at, number)
  if name ~= '' then
    redis.call('HSET', prefix .. parent_number .. ':keys', 'child:' .. name, number)
  end
  flow_save(prefix, parent)
  flow_save(prefix, root)
  flow = { number = number, parent = parent_number, at = at, changed = { parent = true, at = true } }
  flow_set(flow, 'held', is_node and now or nil)
end

flow = number == '0' and { number = '0', changed = {} } or flow
flow_set(flow, 'created', now)
flow_set(flow, 'touched', now)
flow_set(flow, 'generation', 1)
if born ~= '' then
  flow_set(flow, 'born', now)
end
if commit ~= '' then
  flow_set(flow, 'committed', now)
end
if deadline > 0 then
  flow_set(flow, 'deadline', deadline)
end
if linger > 0 then
  flow_set(flow, 'linger', linger)
end
local texts = { unpack(ARGV, 13) }
for n = 1, #texts, 2 do
  local event = string.match(texts[n], '^message:(%a+)$')
  if event then
    flow_set(flow, 'callback:' .. event, 'none')
  end
end
if #texts > 0 then
  redis.call('HSET', prefix .. number .. ':about', unpack(texts))
end
if nodes ~= '' then
  flow_set(flow, 'nodes', count)
end
local first = count > 0 and flow_reserve_numbers(prefix, flow, count, queue, now, nodes ~= '' and 1 or 2) or 0
-- Nothing follows from a flow whose members have yet to run.
local claimed = {}
if count > 0 then
  flow_save(prefix, flow)
elseif flow_rules(todo, prefix, flow, now) then
  claimed = flow_claim(todo, prefix, now)
end
return { 'a', number, first, born ~= '' and now or '', now, claimed }
