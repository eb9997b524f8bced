-- choose_type: chooses the pending tasks that are of certain types; writes nothing. The first `exact` patterns are whole
-- types, the others prefixes; side is the end of the list that the tasks are near, 1 for its head, -1 for its tail.
--
-- RETURNS a function of an id and its message (false where there is none) that returns
--   a  it is to be taken
--   u  it is left where it is
--   m  it is not in the list any more
-- needs: message_field
local function choose_type(pending, task_prefix, side, patterns, exact)
  local types, prefixes = {}, {}
  for n = 1, #patterns do
    if n <= exact then
      types[patterns[n]] = true
    else
      prefixes[#prefixes + 1] = patterns[n]
    end
  end
  return function(id, msg)
    local task_type = msg and message_field(msg, 1) or ''
    local wanted = task_type ~= '' and types[task_type]
    for n = 1, task_type ~= '' and #prefixes or 0 do
      wanted = wanted or string.sub(task_type, 1, #prefixes[n]) == prefixes[n]
    end
    if msg and not wanted then
      return 'u'
    end
    -- Whoever takes a task says so in its hash. What says something else is searched for near the end only, because
    -- a search in vain takes as long as the list.
    local is_pending = redis.pcall('HGET', task_prefix .. id, 'state') == 'pending'
    local waits = redis.call('LPOS', pending, id, 'RANK', side, 'MAXLEN', is_pending and 0 or 1000)
    return waits and (msg and 'a' or 'u') or 'm'
  end
end
