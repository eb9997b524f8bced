-- write_server_state: tell what a server is and what it works on.
--
-- Transition: none                         Go: writeServerStateCmd
--
-- KEYS
--   1  info     asynq:servers:{<host>:<pid>:<id>}  STRING
--   2  workers  asynq:workers:{<host>:<pid>:<id>}  HASH
-- ARGV
--   1  ttl      seconds until both expire
--   2  server   encoded server info
--   then for each running task
--   +1 id       task id
--   +2 worker   encoded worker info
-- RETURNS OK
-- needs: nth
local info, workers = KEYS[1], KEYS[2]
local ttl, server = ARGV[1], ARGV[2]

-- The deletion first: then Redis lets the rest happen when it is out of memory.
redis.call('DEL', workers)
redis.call('SET', info, server, 'EX', ttl)
for n = 1, (#ARGV - 2) / 2 do
  redis.call('HSET', workers, nth(ARGV, 3, 2, n))
end
redis.call('EXPIRE', workers, ttl)
return redis.status_reply('OK')
