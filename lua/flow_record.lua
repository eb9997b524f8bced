-- flow_record: write outcomes of members and callbacks into the ledgers of their flows, and apply the rules.
-- Told again, an outcome changes nothing.
--
-- Transition: none                     Go: none
--
-- KEYS
--   for each tree, of at most 8; on a cluster of one
--   +1 todo     asynq:x:{<root>}:todo  ZSET
-- ARGV
--   for each tree
--   +1 prefix   asynq:x:{<root>}:
--   +2 born     the second that the ids name at which the root was born; empty if they name none
--   +3 size     how many words follow for this tree
--   then for each group of outcomes of it, of at most 100 in all trees
--   +4 number   of the flow
--   +5 outcome  ok, failing, dead, removed, cancelled, again or void: see flow_move, with a dot and the run behind it if that is not the
--              first one of these members; callback; rules, to apply them only; nodes or after, to look again at nodes, see flow_walk;
--              counts, to put counters right that are still as they were found
--   +6 count    how many words follow
--   +7 word     the numbers of members, as flow_move wants them; of a callback its event, generation and outcome; of nodes the first one;
--              of after a member and from where on in the list of those that wait for it; of each counter its field, what was found, what is right
-- DERIVED
--   prefix .. number .. ':flow', ':states', ':about', ':messages', ':before', ':after', ':kids', ':runs', ':signals', and those of its ancestors
-- RETURNS for each tree how many outcomes were new; how many groups were of flows that are gone; and what the caller has to do, see flow_claim;
-- of several trees, nothing for one that cannot be written: written by itself, it tells why
-- needs: flow_claim flow_load flow_move flow_rules flow_runs flow_save flow_set flow_walk
local now = redis.call('TIME')[1]
local words = ARGV

local function record(todo, prefix, born, at, last)
  local new, stray, has_todo = 0, 0, false
  local is_ours = born == '' or nil
  while at < last do
    local number, outcome, count = words[at], words[at + 1], tonumber(words[at + 2])
    local group = { unpack(words, at + 3, at + 2 + count) }
    at = at + 3 + count
    local flow = flow_load(prefix, number)
    if is_ours == nil then
      is_ours = (number == '0' and flow and flow.born or redis.call('HGET', prefix .. '0:flow', 'born')) == born
    end
    flow = is_ours and flow
    local moved = 0
    if is_ours and (outcome == 'rules' or outcome == 'nodes' or outcome == 'after') then
      -- Before it is done: what somebody asks for after that is not lost.
      redis.call('ZREM', todo, table.concat({ outcome, number, unpack(group) }, ' '))
    end
    if not flow then
      stray = stray + 1
    elseif outcome == 'callback' then
      local event, generation, ended = unpack(group)
      local known = flow['callback:' .. event]
      -- These come once, in whichever generation, since the flow was run again.
      local is_once = (event == 'success' or event == 'complete') and tonumber(generation) >= (tonumber(flow.rerun) or 1)
      if known and known ~= 'none' and known ~= 'ok' and known ~= ended and (is_once or generation == flow.generation) then
        flow_set(flow, 'callback:' .. event, ended)
        moved = 1
      end
      redis.call('ZREM', todo, 'call ' .. number .. ' ' .. event .. ' ' .. generation)
    elseif outcome == 'nodes' or outcome == 'after' then
      if flow.held then
        local turn = redis.call('BITFIELD', prefix .. flow.parent .. ':states', 'GET', 'u4', '#' .. flow.at)[1]
        if turn ~= 1 and turn ~= 8 then
          flow_set(flow, 'held', nil)
          flow_set(flow, 'committed', flow.committed or now)
          flow_set(flow, 'touched', now)
        end
      end
      local members = outcome == 'after' and { { group[1], tonumber(group[2]) } } or {}
      has_todo = flow_walk(todo, prefix, flow, members, outcome == 'nodes' and tonumber(group[1])) or has_todo
      outcome = 'rules'
    elseif outcome == 'counts' then
      -- Every move of a member changes counters: as long as they are the same, so are the states that were counted.
      local is_same = true
      for n = 1, count, 3 do
        is_same = is_same and (flow[group[n]] or '') == group[n + 1]
      end
      for n = 1, is_same and count or 0, 3 do
        flow_set(flow, group[n], group[n + 2])
        moved = 1
      end
    elseif outcome ~= 'rules' and not flow['fired:success'] then
      local members
      outcome, group = flow_runs(prefix, flow, outcome, group)
      moved, members = flow_move(prefix, flow, group, outcome)
      has_todo = flow_walk(todo, prefix, flow, members) or has_todo
    end
    if moved > 0 then
      new = new + moved
      flow_set(flow, 'touched', now)
    end
    if flow and (moved > 0 or outcome == 'rules') then
      -- While others are on their way and nobody has died, one success more has no consequences.
      if outcome == 'ok' and (tonumber(flow.c2) or 0) > 0 and not flow['fired:death'] and not flow['fired:settled'] then
        flow_save(prefix, flow)
      else
        has_todo = flow_rules(todo, prefix, flow, now) or has_todo
      end
    end
  end
  return { new, stray, has_todo and flow_claim(todo, prefix, now) or {} }
end

local at, answers = 1, {}
for n, todo in ipairs(KEYS) do
  local prefix, born, last = words[at], words[at + 1], at + 2 + words[at + 2]
  if #KEYS == 1 then
    answers[n] = record(todo, prefix, born, at + 3, last)
  else
    -- One that cannot be written is not in the way of the others.
    local is_written, answer = pcall(record, todo, prefix, born, at + 3, last)
    answers[n] = is_written and answer or {}
  end
  at = last + 1
end
return answers
