-- flow_move: move members of a flow by an outcome, as the table of docs/flows.md says; success is final. What changes
-- nothing was known, or is no longer true. The numbers are texts. What a flow that is cancelled had stopped has not died.
-- RETURNS how many were moved, and in a flow of nodes which, as flow_walk wants them
-- needs: flow_count flow_set flow_tolerate
local function flow_move(prefix, flow, numbers, outcome)
  local is_stopped = flow.cancelled and (outcome == 'dead' or outcome == 'removed')
  local moves = ({
    ok = { [0] = 4, [1] = 4, [2] = 4, [3] = 4, [5] = 4, [6] = 4, [7] = 4, [8] = 4 },
    failing = { [1] = 3, [2] = 3 },
    dead = { [0] = 5, [1] = 5, [2] = 5, [3] = 5, [6] = 5, [8] = 5 },
    removed = { [2] = 6, [3] = 6, [10] = 6, [12] = 6 },
    cancelled = { [1] = 7, [2] = 7, [3] = 7, [10] = 7, [12] = 7 },
    again = { [5] = 2, [6] = 2 },
    skipped = { [1] = 8, [2] = 8, [5] = 8 },
    void = { [2] = 0, [3] = 6 },
  })[is_stopped and 'cancelled' or outcome]
  local states = prefix .. flow.number .. ':states'
  local next_number = tonumber(flow.next) or 0
  -- A number that was never given out, or not here: its reservation was lost. One far away is an error of somebody's.
  local farthest = next_number + 100000
  local sorted = {}
  for n = 1, #numbers do
    local number = tonumber(numbers[n])
    if number < farthest then
      sorted[#sorted + 1] = number
    end
  end
  table.sort(sorted)

  local by, moved, members, n = {}, 0, {}, 1
  while sorted[n] do
    -- Those that lie close are read together, and written together.
    local last = n
    while sorted[last + 1] and sorted[last + 1] - sorted[last] <= 32 do
      last = last + 1
    end
    local from, to = (sorted[n] - sorted[n] % 2) / 2, (sorted[last] - sorted[last] % 2) / 2
    -- Redis writes numbers with a fraction, which takes four times as long.
    local first = string.format('%d', from)
    local bytes = { string.byte(redis.call('GETRANGE', states, first, string.format('%d', to)), 1, -1) }
    for missing = #bytes + 1, to - from + 1 do
      bytes[missing] = 0
    end
    local before = moved
    for at = n, last do
      local number = sorted[at]
      local low = number % 2
      local place, step = (number - low) / 2 - from + 1, low == 0 and 16 or 1
      local byte = bytes[place]
      local state = low == 1 and byte % 16 or (byte - byte % 16) / 16
      local new = moves[state]
      if new then
        bytes[place] = byte + (new - state) * step
        by[state] = (by[state] or 0) - 1
        by[new] = (by[new] or 0) + 1
        moved = moved + 1
        if flow.nodes then
          members[#members + 1] = { number, 1 }
          flow_tolerate(prefix, flow, number, state, new)
        end
        if number >= next_number then
          next_number = number + 1
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
  for state, count in pairs(by) do
    if state ~= 0 then
      flow_count(flow, state, count)
    end
  end
  return moved, members
end
