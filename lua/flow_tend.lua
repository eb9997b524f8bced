-- flow_tend: look after up to 16 flows of a tree: deadlines, flows that nobody goes on with, what nobody has carried out; and
-- say which stand still, so that somebody has to look where their members are.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo      asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix    asynq:x:{<root>}:
--   2  from      the first flow to look at
--   3  still     seconds without an outcome after which a flow stands still; doubled after each look, up to an hour
--   4  patience  seconds after which a flow that is not committed, and to which nobody has added, is abandoned
--   5  linger    seconds for which a tree is kept when it is over, if all is well; unless its root says otherwise
--   6  keep      the same if not all is well
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':messages', ':states', and those of its ancestors
-- RETURNS 1 if the tree is to be forgotten, 2 if it was, as it is of one batch without nodes, else 0; the flow to go on with, 0 if there are no more; the seconds until the
--   next look; the numbers of the flows that stand still; and what the caller has to do, see flow_claim. A tree that is gone
--   is to be forgotten.
-- needs: flow_claim flow_load flow_rules flow_save flow_set flow_unlink write
local todo = KEYS[1]
local prefix, from, still, patience = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local linger, keep = tonumber(ARGV[5]), tonumber(ARGV[6])

local now = tonumber(redis.call('TIME')[1])
local root = flow_load(prefix, '0')
if not root then
  return { 1, 0, 0, {}, {} }
end
local flows = tonumber(root.flows) or 1
local next_look, standing = now + 3600, {}
local function look_at(second)
  next_look = math.min(next_look, second)
end

local last = math.min(from + 15, flows - 1)
for number = from, last do
  local flow = number == 0 and root or flow_load(prefix, tostring(number))
  if flow and flow.over and number == 0 then
    local stays = tonumber(flow.linger) or flow['fired:success'] and linger or keep
    if flow.over + stays <= now then
      if flows == 1 and not flow.nodes then
        flow_unlink(prefix, '0')
        redis.call('DEL', todo)
        return { 2, 0, 0, {}, {} }
      end
      -- Results are deleted first: no node runs again that would have read them. Frees memory in the end.
      write('HSET', prefix .. '0:flow', 'forgotten', 1)
      return { 1, 0, 0, {}, {} }
    end
    look_at(flow.over + stays)
  elseif flow and flow.held and not flow.over then
    -- Its turn has come, and nobody knows of it.
    local turn = redis.call('BITFIELD', prefix .. flow.parent .. ':states', 'GET', 'u4', '#' .. flow.at)[1]
    if turn ~= 1 and turn ~= 8 then
      redis.call('ZADD', todo, 'NX', 0, 'nodes ' .. number .. ' 0')
    end
  elseif flow and not flow.over then
    local deadline = not flow.cancelled and not flow['fired:success'] and tonumber(flow.deadline)
    if deadline and deadline <= now then
      flow_set(flow, 'cancelled', now)
      flow_set(flow, 'expired', now)
      redis.call('ZADD', todo, 0, 'stop ' .. number)
      flow_rules(todo, prefix, flow, now)
    elseif deadline then
      look_at(deadline)
    end
    local touched = tonumber(flow.touched)
    if not flow.committed and not flow.cancelled and not flow.abandoned then
      if touched + patience <= now then
        flow_set(flow, 'abandoned', now)
        if flow.nodes then
          -- They would wait for ever.
          flow_set(flow, 'cancelled', now)
          redis.call('ZADD', todo, 0, 'stop ' .. number)
        end
        flow_rules(todo, prefix, flow, now)
      else
        look_at(touched + patience)
      end
    end
    local looked, pause = tonumber(flow.looked) or 0, tonumber(flow.pause) or still
    if looked < touched then
      looked, pause = touched, still
    end
    -- Who adds members has numbers for them before they are there.
    local stands_at = math.max(looked + pause, tonumber(flow.adding) or 0)
    if stands_at <= now then
      standing[#standing + 1] = tostring(number)
      if (tonumber(flow.c1) or 0) > 0 then
        redis.call('ZADD', todo, 'NX', 0, 'nodes ' .. number .. ' 0')
      end
      looked, pause = now, math.min(2 * pause, 3600)
      flow_set(flow, 'looked', looked)
      flow_set(flow, 'pause', pause)
      flow_save(prefix, flow)
      stands_at = now + pause
    end
    look_at(stands_at)
  end
end
local function first()
  return tonumber(redis.call('ZRANGE', todo, 0, 0, 'WITHSCORES')[2])
end
local claimed, due_at = {}, first()
if due_at and due_at <= now then
  claimed = flow_claim(todo, prefix, now)
  due_at = first()
end
if due_at then
  look_at(due_at)
end
return { 0, last + 1 < flows and last + 1 or 0, math.max(next_look - now, 1), standing, claimed }
