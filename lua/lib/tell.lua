-- tell: append how members of flows have ended to the list of the one who tells it; their ids begin with 'flow:'.
--
-- An entry is one text, its parts divided by spaces: stamp, outcome, ids. The stamp makes it unlike all others of the list, which is
-- how trim_outcomes finds it when the outcomes stand in the ledgers of their flows. A second line is an entry as it stands: the
-- task that follows a lone one which is archived.
local function tell(ids, entry, outcomes, lists)
  local line = string.find(entry, '\n', 1, true)
  if line and redis.call('RPUSH', outcomes, string.sub(entry, line + 1)) == 1 then
    redis.call('SADD', lists, outcomes)
  end
  local words = { line and string.sub(entry, 1, line - 1) or entry }
  for n = 1, #ids do
    if string.sub(ids[n], 1, 5) == 'flow:' then
      words[#words + 1] = ids[n]
    end
  end
  if #words > 1 and redis.call('RPUSH', outcomes, table.concat(words, ' ')) == 1 then
    redis.call('SADD', lists, outcomes)
  end
end
