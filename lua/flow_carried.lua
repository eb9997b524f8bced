-- flow_carried: what was claimed is done; it is taken out of `todo`.
--
-- Transition: none                     Go: none
--
-- KEYS
--   1  todo    asynq:x:{<root>}:todo  ZSET
-- ARGV
--   1  prefix  asynq:x:{<root>}:
--   then for each entry, at most 25
--   +1 entry   as flow_claim has given it
-- DERIVED
--   prefix .. number .. ':flow', ':about', ':messages'
-- RETURNS how many were there; and what is to be done next, see flow_claim
-- needs: flow_claim
local todo = KEYS[1]
local prefix = ARGV[1]

local found = 0
for _, entry in ipairs({ unpack(ARGV, 2) }) do
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
return { found, flow_claim(todo, prefix, tonumber(redis.call('TIME')[1])) }
