-- flow_rules: what follows from the state of a flow: its events fire, their callbacks are put into `todo`, and the member that
-- stands for it in its parent moves; then the same for the parent, up to 25 levels, the rest by an entry of `todo`.
--
-- This is the only place where the rules stand; docs/flows.md says them in words. Fields: see docs/wire-format.md.
-- RETURNS whether anything is to be done by the caller
-- needs: flow_count flow_load flow_save flow_set flow_tolerate flow_walk
local function flow_rules(todo, prefix, flow, now)
  local function count(counter)
    return tonumber(flow[counter]) or 0
  end
  local function is_over(event)
    local callback = flow['callback:' .. event]
    return not flow['fired:' .. event] or not callback or callback == 'ok' or callback == 'dead'
  end
  local has_todo = false
  local function fire(event)
    flow_set(flow, 'fired:' .. event, now)
    if flow['callback:' .. event] then
      flow_set(flow, 'callback:' .. event, 'due')
      if tonumber(flow.generation) > 1 then
        flow_set(flow, 'called:' .. event, flow.generation)
      end
      redis.call('ZADD', todo, 0, 'call ' .. flow.number .. ' ' .. event .. ' ' .. flow.generation)
      has_todo = true
    end
  end

  for level = 1, 25 do
    local live = count('c1') + count('c2') + count('c3') + count('c9') + count('c10') + count('c12')
    local bad = count('c5') + count('c6') + count('c10') + count('c12') + (flow.cancelled and 0 or count('c7')) - (tonumber(flow.tolerated) or 0)
    for _, event in ipairs({ 'complete', 'success' }) do
      if flow['callback:' .. event] == 'dead' then
        bad = bad + 1
      end
    end
    local is_closed = flow.committed or flow.cancelled or flow.abandoned
    local is_whole = flow.committed and not flow.cancelled and not flow.abandoned

    -- What was dead runs again, or has recovered: death and settled may come once more.
    if not flow['fired:success'] and (flow['fired:settled'] and live > 0 or flow['fired:death'] and bad == 0) then
      flow_set(flow, 'generation', flow.generation + 1)
      flow_set(flow, 'over', nil)
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
    if is_whole and count('c1') + count('c2') + count('c9') + count('c10') == 0 and not flow['fired:complete'] then
      fire('complete')
    end
    local completed = flow['callback:complete']
    if is_whole and live == 0 and bad == 0 and (not completed or completed == 'ok') and not flow['fired:success'] then
      fire('success')
    end
    if is_closed and live == 0 and is_over('death') and is_over('complete') and is_over('success') and not flow['fired:settled'] then
      fire('settled')
    end
    local is_at_rest = flow['fired:settled'] and is_over('settled')
    if is_at_rest and not flow.over then
      flow_set(flow, 'over', now)
    end

    local seen = 2
    if is_at_rest then
      local all_well = flow['fired:success'] and true
      for _, event in ipairs({ 'complete', 'success', 'settled' }) do
        all_well = all_well and flow['callback:' .. event] ~= 'dead'
      end
      seen = all_well and 4 or flow.cancelled and 7 or 5
    elseif bad > 0 then
      seen = flow['fired:complete'] and is_over('complete') and 12 or 10
    elseif flow['fired:complete'] and is_over('complete') and live > 0 then
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
    if level == 25 then
      flow_save(prefix, parent)
      redis.call('ZADD', todo, 0, 'rules ' .. flow.parent)
      return true
    end
    flow = parent
  end
end
