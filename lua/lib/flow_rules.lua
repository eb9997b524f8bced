-- flow_rules: what follows from the state of a flow: its events fire, their callbacks are put into `todo`, and the member that
-- stands for it in its parent moves; then the same for the parent, up to ten levels in a call, the rest by an entry of `todo`.
--
-- This is the only place where the rules stand; docs/flows.md says them in words. Fields: see docs/wire-format.md.
-- now: the unix second, best as TIME tells it: what is no number is written as it is.
-- RETURNS whether anything is to be done by the caller
-- needs: flow_count flow_load flow_save flow_set flow_tolerate flow_walk
local levels = 10
local function flow_rules(todo, prefix, flow, now)
  local function is_over(fired, callback)
    return not fired or not callback or callback == 'ok' or callback == 'dead'
  end
  local has_todo = false
  local function fire(event)
    flow_set(flow, 'fired:' .. event, now)
    if flow['callback:' .. event] then
      flow_set(flow, 'callback:' .. event, 'due')
      if tonumber(flow.generation) > 1 then
        flow_set(flow, 'called:' .. event, flow.generation)
      end
      redis.call('ZADD', todo, '0', 'call ' .. flow.number .. ' ' .. event .. ' ' .. flow.generation)
      has_todo = true
    end
  end

  while true do
    levels = levels - 1
    -- Adding makes a number of a text. Most counters are not there, and a call of Lua's own takes as long as ten of these.
    local untried = (flow.c1 or 0) + (flow.c2 or 0) + (flow.c9 or 0) + (flow.c10 or 0)
    local live = untried + (flow.c3 or 0) + (flow.c12 or 0)
    local cancelled = flow.cancelled and 0 or flow.c7 or 0
    local bad = (flow.c5 or 0) + (flow.c6 or 0) + (flow.c10 or 0) + (flow.c12 or 0) + cancelled - (flow.tolerated or 0)
    bad = bad + (flow['callback:complete'] == 'dead' and 1 or 0) + (flow['callback:success'] == 'dead' and 1 or 0)
    local is_closed = flow.committed or flow.cancelled or flow.abandoned
    local is_whole = flow.committed and not flow.cancelled and not flow.abandoned

    -- What was dead runs again, or has recovered, or what was abandoned is taken up again: death and settled may come once more.
    local is_settled = flow['fired:settled'] and live == 0 and is_closed
    if not flow['fired:success'] and (flow['fired:settled'] and not is_settled or flow['fired:death'] and bad == 0) then
      flow_set(flow, 'generation', flow.generation + 1)
      flow_set(flow, 'over', nil)
      if flow.deadline and tonumber(flow.deadline) <= tonumber(now) then
        flow_set(flow, 'deadline', nil)
      end
      flow_set(flow, 'forgotten', nil)
      for _, event in ipairs({ 'death', 'settled' }) do
        flow_set(flow, 'fired:' .. event, nil)
        if flow['callback:' .. event] then
          flow_set(flow, 'callback:' .. event, 'none')
        end
      end
    end

    if bad > 0 and not flow['fired:death'] then
      fire('death')
    end
    if is_whole and not flow['fired:complete'] and untried == 0 then
      fire('complete')
    end
    local completed = flow['callback:complete']
    if is_whole and live == 0 and bad == 0 and (not completed or completed == 'ok') and not flow['fired:success'] then
      fire('success')
    end
    local is_completed = is_over(flow['fired:complete'], flow['callback:complete'])
    local is_due = is_closed and live == 0 and not flow['fired:settled'] and is_completed
    if is_due and is_over(flow['fired:death'], flow['callback:death']) and is_over(flow['fired:success'], flow['callback:success']) then
      fire('settled')
    end
    local is_at_rest = flow['fired:settled'] and is_over(true, flow['callback:settled'])
    if is_at_rest and not flow.over then
      flow_set(flow, 'over', now)
    end

    local seen = 2
    if is_at_rest then
      local has_died = flow['callback:complete'] == 'dead' or flow['callback:success'] == 'dead' or flow['callback:settled'] == 'dead'
      seen = flow['fired:success'] and not has_died and 4 or flow.cancelled and 7 or 5
    elseif bad > 0 then
      seen = flow['fired:complete'] and is_completed and 12 or 10
    elseif flow['fired:complete'] and is_completed and live > 0 then
      seen = 3
    end
    flow_save(prefix, flow)

    local parent = flow.parent and flow_load(prefix, flow.parent)
    if not parent then
      return has_todo
    end
    local states, at = prefix .. flow.parent .. ':states', '#' .. flow.at
    local known = redis.call('BITFIELD', states, 'GET', 'u4', at)[1]
    -- A node whose turn has not come, or does not come, stands as it is, whatever its batch does. Success is final.
    if known == seen or known == 1 or known == 8 or parent['fired:success'] then
      return has_todo
    end
    redis.call('BITFIELD', states, 'SET', 'u4', at, seen)
    flow_count(parent, known, -1)
    flow_count(parent, seen, 1)
    flow_tolerate(prefix, parent, flow.at, known, seen)
    flow_set(parent, 'touched', now)
    has_todo = flow_walk(todo, prefix, parent, { { flow.at, 1 } }) or has_todo
    if levels <= 0 then
      flow_save(prefix, parent)
      redis.call('ZADD', todo, '0', 'rules ' .. flow.parent)
      return true
    end
    flow = parent
  end
end
