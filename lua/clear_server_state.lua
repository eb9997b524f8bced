-- clear_server_state: a server has left.
--
-- Transition: none                         Go: clearServerStateCmd
--
-- KEYS
--   1  info     asynq:servers:{<host>:<pid>:<id>}  STRING
--   2  workers  asynq:workers:{<host>:<pid>:<id>}  HASH
-- RETURNS how many of the two existed
local info, workers = KEYS[1], KEYS[2]

return redis.call('DEL', info, workers)
