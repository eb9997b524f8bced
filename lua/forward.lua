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
--   5  limit         how many to look at per call
--   6  skip          how many of those that are due to leave out, because they had to stay before
-- DERIVED
--   task_prefix .. id, group_prefix .. group
-- RETURNS how many were moved; how many ids without a task were dropped; how many have to stay, because
--   a key of another type stands where their group should be; the unix second of the next one that is
--   not due yet (-1 for none)
local source, pending, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, group_prefix, now, now_ns = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, skip = ARGV[5], ARGV[6]

local moved, dropped, stayed = 0, 0, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', source, '-inf', now, 'LIMIT', skip, limit)) do
  local task = task_prefix .. id
  local fields = redis.pcall('HMGET', task, 'msg', 'group')
  if stray(fields) then
    redis.call('ZREM', source, id)
    dropped = dropped + 1
  elseif not fields[1] or fields[1] == '' then
    redis.call('ZREM', source, id)
    redis.call('DEL', task)
    dropped = dropped + 1
  elseif not fields[2] or fields[2] == '' then
    redis.call('LPUSH', pending, id)
    redis.call('HSET', task, 'state', 'pending', 'pending_since', now_ns)
    redis.call('ZREM', source, id)
    moved = moved + 1
  elseif stray(redis.pcall('ZADD', group_prefix .. fields[2], now, id)) then
    stayed = stayed + 1
  else
    redis.pcall('SADD', groups, fields[2])
    redis.call('HSET', task, 'state', 'aggregating')
    redis.call('ZREM', source, id)
    moved = moved + 1
  end
end
local next_one = redis.call('ZRANGEBYSCORE', source, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return { moved, dropped, stayed, tonumber(next_one[2] or -1) }
