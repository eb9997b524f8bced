-- forward: make tasks pending whose time has come.
--
-- Transition: scheduled | retry -> pending | aggregating      Go: forwardCmd
-- Differs from Go: a group that receives a task is listed (W20), and a task that was scheduled with a group
-- joins it (W21); an id without a task is dropped and counted instead of becoming one without a message (W12); says
-- when to come back (W05).
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
--   5  limit         how many to look at, at most 100 per call
--   6  skip          how many of those that are due to leave out, because they had to stay before
-- DERIVED
--   task_prefix .. id, group_prefix .. group
-- RETURNS how many were moved; how many ids without a task were dropped; how many have to stay, because
--   a key of another type stands where their group should be; the unix second of the next one that is
--   not due yet (-1 for none)
-- needs: is_wrong_type make_pending
local source, pending, groups = KEYS[1], KEYS[2], KEYS[3]
local task_prefix, group_prefix, now, now_ns = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local limit, skip = ARGV[5], ARGV[6]

local ready, grouped, dropped, empty, stayed = {}, {}, {}, {}, 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', source, '-inf', now, 'LIMIT', skip, limit)) do
  local fields = redis.pcall('HMGET', task_prefix .. id, 'msg', 'group', 'x_group')
  if is_wrong_type(fields) then
    dropped[#dropped + 1] = id
  elseif not fields[1] or fields[1] == '' then
    dropped[#dropped + 1] = id
    empty[#empty + 1] = task_prefix .. id
  else
    local group = fields[2] or fields[3]
    if group and group ~= '' then
      grouped[#grouped + 1] = { id, group }
    else
      ready[#ready + 1] = id
    end
  end
end
if #ready > 0 then
  make_pending('LPUSH', pending, task_prefix, ready, now_ns)
  redis.call('ZREM', source, unpack(ready))
elseif #grouped > 0 then
  redis.call('ZREMRANGEBYRANK', source, 1, 0) -- of nothing: see lib/write.lua
end
for n = 1, #grouped do
  local id, group = grouped[n][1], grouped[n][2]
  if is_wrong_type(redis.pcall('ZADD', group_prefix .. group, now, id)) then
    stayed = stayed + 1
  else
    redis.pcall('SADD', groups, group)
    redis.call('HSET', task_prefix .. id, 'state', 'aggregating', 'group', group)
    redis.call('HDEL', task_prefix .. id, 'x_group')
    redis.call('ZREM', source, id)
  end
end
if #dropped > 0 then
  redis.call('ZREM', source, unpack(dropped))
end
if #empty > 0 then
  redis.call('DEL', unpack(empty))
end
local next_one = redis.call('ZRANGEBYSCORE', source, '(' .. now, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
return { #ready + #grouped - stayed, #dropped, stayed, tonumber(next_one[2] or -1) }
