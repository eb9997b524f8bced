-- list_server: put a server on a list, and take those off it that have been silent for too long.
--
-- Transition: none                         Go: WriteServerState (ZADD)
-- Differs from Go: it forgets servers whether anybody looks at the list or not (W46).
--
-- KEYS
--   1  list     asynq:servers or asynq:workers  ZSET
-- ARGV
--   1  member   the key that holds the server's state
--   2  expires  unix second until which it is listed
--   3  now      unix time in seconds
-- RETURNS OK
local list, member, expires, now = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

-- The deletion first: then Redis lets the rest happen when it is out of memory.
redis.call('ZREMRANGEBYSCORE', list, '-inf', now - 1)
redis.call('ZADD', list, expires, member)
return redis.status_reply('OK')
