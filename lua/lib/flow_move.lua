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
    removed = { [2] = 6, [3] = 6 },
    cancelled = { [1] = 7, [2] = 7, [3] = 7 },
    again = { [5] = 2, [6] = 2 },
    skipped = { [1] = 8, [2] = 8, [5] = 8 },
    void = { [2] = 0, [3] = 6 },
  })[is_stopped and 'cancelled' or outcome]
  local states = prefix .. flow.number .. ':states'
  -- A number that was never given out, or not here: its reservation was lost. One far away is an error of somebody's.
  local farthest = (tonumber(flow.next) or 0) + 100000
  local read, known = {}, {}
  for n = 1, #numbers do
    local number = numbers[n]
    if tonumber(number) < farthest and not known[number] then
      known[number] = true
      local at = #read
      read[at + 1], read[at + 2], read[at + 3] = 'GET', 'u4', '#' .. number
    end
  end
  if #read == 0 then
    return 0, {}
  end
  local found, write, by, moved, members = redis.call('BITFIELD', states, unpack(read)), {}, {}, 0, {}
  for n = 1, #found do
    local from = found[n]
    local to = moves[from]
    if to then
      local at = #write
      write[at + 1], write[at + 2], write[at + 3], write[at + 4] = 'SET', 'u4', read[3 * n], to
      by[from] = (by[from] or 0) - 1
      by[to] = (by[to] or 0) + 1
      local number = tonumber(string.sub(read[3 * n], 2))
      moved = moved + 1
      if flow.nodes then
        members[#members + 1] = { number, 1 }
        flow_tolerate(prefix, flow, number, from, to)
      end
      if number >= (tonumber(flow.next) or 0) then
        flow_set(flow, 'next', number + 1)
      end
    end
  end
  if #write > 0 then
    redis.call('BITFIELD', states, unpack(write))
  end
  for state, count in pairs(by) do
    if state ~= 0 then
      flow_count(flow, state, count)
    end
  end
  return moved, members
end
