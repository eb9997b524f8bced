-- lead: become the leader of the fleet, or stay it.
--
-- Transition: none                         Go: none; its servers have no leader
--
-- KEYS
--   1  leader  asynq:x:leader  STRING, id of the server that leads
-- ARGV
--   1  server  id of the server that asks
--   2  ttl     seconds for which it leads, unless it asks again
-- RETURNS
--   1  it leads
--   0  another one does; nothing was written
local leader, server, ttl = KEYS[1], ARGV[1], ARGV[2]

local holder = redis.call('GET', leader)
if holder and holder ~= server then
  return 0
end
-- The deletion first: then Redis lets the rest happen when it is out of memory.
redis.call('DEL', leader)
redis.call('SET', leader, server, 'EX', ttl)
return 1
