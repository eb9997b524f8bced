-- flow_carried: what was claimed is done; it is taken out of `todo`.
--
-- Transition: none                     Go: none
--
-- KEYS
--   for each tree, of at most 8; on a cluster of one
--   +1 todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   for each tree
--   +1 prefix  asynq:x:{<root>}:
--   +2 size    how many entries follow for this tree
--   then for each entry, of at most 100 in all trees
--   +3 entry   as flow_claim has given it
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':messages'
-- RETURNS for each tree how many were there; and what is to be done next, see flow_claim
-- needs: flow_claim
local now = redis.call('TIME')[1]
local words, at, answers = ARGV, 1, {}

for n, todo in ipairs(KEYS) do
  local prefix, last, found = words[at], at + 1 + words[at + 1], 0
  for place = at + 2, last do
    local entry = words[place]
    found = found + redis.call('ZREM', todo, entry)
    local number, event, generation = string.match(entry, '^call (%d+) (%a+) (%d+)$')
    if number then
      local flow = prefix .. number .. ':flow'
      local known = redis.call('HMGET', flow, 'callback:' .. event, 'generation', 'rerun')
      -- One of an earlier generation says nothing of the callback that is due now.
      local is_once = (event == 'success' or event == 'complete') and tonumber(generation) >= (tonumber(known[3]) or 1)
      local is_of_now = is_once or known[2] == generation
      if known[1] == 'due' and is_of_now then
        redis.call('HSET', flow, 'callback:' .. event, 'sent')
      end
    end
  end
  at = last + 1
  answers[n] = { found, flow_claim(todo, prefix, now) }
end
return answers
