-- flow_move: move members of a flow by an outcome, as the table of docs/flows.md says; success is final. What changes
-- nothing was known, or is no longer true. numbers: texts, each a number, or the first and the last of several in a row (`3-7`).
-- What a flow that is cancelled had stopped has not died.
-- RETURNS how many were moved, and in a flow of nodes which, as flow_walk wants them
-- needs: flow_count flow_set flow_tolerate
local function flow_move(prefix, flow, numbers, outcome)
  local is_stopped = flow.cancelled and (outcome == 'dead' or outcome == 'removed')
  -- In the place of each state, from 0 to 12, the one that follows; a table of tables would be made anew in each call.
  local follows = ({
    ok        = '4444_4444____',
    failing   = '_33__________',
    dead      = '5555__5_5____',
    removed   = '__66______6_6',
    cancelled = '_777______7_7',
    again     = '_____22______',
    skipped   = '_88__8_______',
    void      = '__06_________',
  })[is_stopped and 'cancelled' or outcome]
  local states = prefix .. flow.number .. ':states'
  local next_number = tonumber(flow.next) or 0
  -- A number that was never given out, or not here: its reservation was lost. One far away is an error of somebody's.
  local farthest = next_number + 100000
  local firsts, lasts = {}, {}
  for n = 1, #numbers do
    local first, last = tonumber(numbers[n]), nil
    if not first then
      first, last = string.match(numbers[n], '^(%d+)-(%d+)$')
      first, last = tonumber(first), tonumber(last)
    end
    if first < farthest then
      firsts[#firsts + 1] = first
      lasts[#lasts + 1] = last and math.min(last, farthest - 1) or first
    end
  end

  local known, left, moved, members, n = {}, {}, 0, {}, 1
  while firsts[n] do
    -- Those that follow each other and lie close are read together, and written together.
    local last = n
    while firsts[last + 1] and firsts[last + 1] > lasts[last] and firsts[last + 1] - lasts[last] <= 32 do
      last = last + 1
    end
    local from, to = (firsts[n] - firsts[n] % 2) / 2, (lasts[last] - lasts[last] % 2) / 2
    -- Redis writes numbers with a fraction, which takes four times as long.
    local first = string.format('%d', from)
    local bytes = { string.byte(redis.call('GETRANGE', states, first, string.format('%d', to)), 1, -1) }
    for missing = #bytes + 1, to - from + 1 do
      bytes[missing] = 0
    end
    local before = moved
    for at = n, last do
      for number = firsts[at], lasts[at] do
        local low = number % 2
        local place = (number - low) / 2 - from + 1
        local byte = bytes[place]
        local state = byte % 16
        if low == 0 then
          state = (byte - state) / 16
        end
        local new = known[state]
        if new == nil then
          new = tonumber(string.sub(follows, state + 1, state + 1)) or false
          known[state] = new
        end
        if new then
          bytes[place] = byte + (new - state) * (low == 0 and 16 or 1)
          left[state] = (left[state] or 0) + 1
          moved = moved + 1
          if number >= next_number then
            next_number = number + 1
          end
          if flow.nodes then
            members[moved] = { number, 1 }
            flow_tolerate(prefix, flow, number, state, new)
          end
        end
      end
    end
    if moved > before then
      redis.call('SETRANGE', states, first, string.char(unpack(bytes)))
    end
    n = last + 1
  end
  if next_number > (tonumber(flow.next) or 0) then
    flow_set(flow, 'next', next_number)
  end
  for state, count in pairs(left) do
    if state ~= 0 then
      flow_count(flow, state, -count)
    end
    if known[state] ~= 0 then
      flow_count(flow, known[state], count)
    end
  end
  return moved, members
end
