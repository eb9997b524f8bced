-- flow_runs: leave out those members whose present run an outcome does not tell of: they were run again since. The outcome
-- has its run behind a dot, if that is not the first one. numbers: as flow_move wants them.
-- RETURNS the outcome without the run, and the numbers
local function flow_runs(prefix, flow, outcome, numbers)
  local word, run = string.match(outcome, '^(%a+)%.(%d+)$')
  if not flow.rerun and not run or #numbers == 0 then
    return word or outcome, numbers
  end
  local each, left = {}, {}
  for n = 1, #numbers do
    local first, last = string.match(numbers[n], '^(%d+)-?(%d*)$')
    for number = tonumber(first), tonumber(last) or tonumber(first) do
      each[#each + 1] = string.format('%d', number)
    end
  end
  for n, now in ipairs(redis.call('HMGET', prefix .. flow.number .. ':runs', unpack(each))) do
    if (now or '1') == (run or '1') then
      left[#left + 1] = each[n]
    end
  end
  return word or outcome, left
end
