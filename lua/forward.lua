-- forward: make tasks pending whose time has come.
--
-- Transition: scheduled | retry -> pending | aggregating      Go: forwardCmd
-- Differs from Go: a group that receives a task is listed (W20); an id without a task is dropped and
-- counted instead of becoming one without a message (W12); says when to come back (W05).
--
-- KEYS
--   1  source   asynq:{<queue>}:scheduled or :retry  ZSET
--   2  pending  asynq:{<queue>}:pending              LIST
--   3  groups   asynq:{<queue>}:groups               SET
-- ARGV
--   1  task_prefix   asynq:{<queue>}:t:
--   2  group_prefix  asynq:{<queue>}:g:
--   3  now           unix time in seconds
--   4  now_ns        unix time in nanoseconds
--   5  limit         how many to move per call
-- DERIVED
--   task_prefix .. id, group_prefix .. group
-- RETURNS how many were moved, how many ids without a task were dropped, and the unix second of the
--   next one that is due (-1 for none)
local source, pending, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, group_prefix, now, now_ns, limit = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local moved, dropped = 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', source, '-inf', now, 'LIMIT', 0, limit)) do
  local task = task_prefix .. id
  local fields = redis.pcall('HMGET', task, 'msg', 'group')
  local stays = false
  if fields.err or not fields[1] or fields[1] == '' then
    dropped = dropped + 1
    if not fields.err then
      redis.call('DEL', task)
    end
  elseif fields[2] and fields[2] ~= '' then
    local joined = redis.pcall('ZADD', group_prefix .. fields[2], now, id)
    if type(joined) == 'table' then
      stays = true -- a key of another type stands where the group should be; the task keeps waiting
    else
      redis.pcall('SADD', groups, fields[2])
      redis.call('HSET', task, 'state', 'aggregating')
      moved = moved + 1
    end
  else
    redis.call('LPUSH', pending, id)
    redis.call('HSET', task, 'state', 'pending', 'pending_since', now_ns)
    moved = moved + 1
  end
  if not stays then
    redis.call('ZREM', source, id)
  end
end
local head = redis.call('ZRANGE', source, 0, 0, 'WITHSCORES')
return { moved, dropped, tonumber(head[2] or -1) }
