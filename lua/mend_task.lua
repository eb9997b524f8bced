-- mend_task: bring a task into the one place where it belongs, or delete what is left of it; only if all is
-- still as it was when that was decided.
--
-- Transition: any -> any, or (deleted)     Go: none
--
-- KEYS
--   1  pending     asynq:{<queue>}:pending           LIST
--   2  active      asynq:{<queue>}:active            LIST
--   3  lease       asynq:{<queue>}:lease             ZSET
--   4  scheduled   asynq:{<queue>}:scheduled         ZSET
--   5  retry       asynq:{<queue>}:retry             ZSET
--   6  archived    asynq:{<queue>}:archived          ZSET
--   7  completed   asynq:{<queue>}:completed         ZSET
--   8  sets        asynq:{<queue>}:aggregation_sets  ZSET
--   9  aggregated  asynq:{<queue>}:x:aggregated      SET
--   10 groups      asynq:{<queue>}:groups            SET
--   11 task        asynq:{<queue>}:t:<id>            HASH
--   12 place       where it belongs, LIST or ZSET; the task again when it is to be deleted
-- ARGV
--   1  prefix      asynq:{<queue>}:
--   2  id          task id
--   3  digest      what examine_tasks gave as digest
--   4  score       its score there; '' in a list
--   5  state       the state for its hash
--   6  group       the group for its hash; '' to leave that alone
--   7  expires     unix second at which its lease ends; '' for none
--   8  copy        DUMP of the hash that is to be deleted; '' when there is none
--   9  now_ns      unix time in nanoseconds
--   then for each group in which it was seen, at most 100
--   +1 group       its name
-- DERIVED
--   prefix .. 'g:' .. group, and the members of sets and aggregated
-- RETURNS
--   1  done
--   0  it is not as it was; nothing was written
-- needs: examine_task write
local pending, active, lease, scheduled, retry = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local archived, completed, sets, aggregated = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local groups, task, place = KEYS[10], KEYS[11], KEYS[12]
local prefix, id, digest = ARGV[1], ARGV[2], ARGV[3]
local score, state, group, expires, copy, now_ns = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local holders = { pending = pending, active = active, lease = lease, staged = sets, aggregated = aggregated }
holders.sets = { scheduled, retry, archived, completed }
local deletes = place == task
local group_prefix = prefix .. 'g:'

local found = examine_task(holders, prefix, id, { unpack(ARGV, 10) })
if found[1] ~= digest then
  return 0
end
if deletes and (redis.call('DUMP', task) or '') ~= copy then
  return 0
end
local holds = not deletes and redis.call('TYPE', place).ok or 'none'
if holds ~= 'none' and holds ~= (score == '' and 'list' or 'zset') then
  return redis.error_reply('WRONGTYPE the place of the task holds another type')
end
if expires ~= '' and not string.find('zset none', redis.call('TYPE', holders.lease).ok, 1, true) then
  return redis.error_reply('WRONGTYPE the leases of the queue are of another type')
end

local times = 0
for n = 10, #found, 3 do
  local key, listed = found[n], found[n + 1] == ''
  if key == place then
    times = times + 1
    if times > 1 then
      -- The one that is next to run stays.
      redis.call('LREM', key, 1, id)
    end
  elseif listed then
    redis.call('LREM', key, 0, id)
  else
    redis.call('ZREM', key, id)
    if string.sub(key, 1, #group_prefix) == group_prefix and redis.call('EXISTS', key) == 0 then
      -- A set or a group that is empty now is no longer listed.
      redis.call('ZREM', holders.staged, key)
      redis.pcall('SREM', groups, string.sub(key, #group_prefix + 1))
    end
  end
end
if expires ~= '' then
  write('ZADD', holders.lease, expires, id)
elseif found[8] ~= '' then
  redis.call('ZREM', holders.lease, id)
end
if deletes then
  redis.call('DEL', task)
  return 1
end
if score ~= '' then
  write('ZADD', place, score, id)
elseif times == 0 then
  -- Whoever was lost has waited the longest.
  write(place == holders.pending and 'RPUSH' or 'LPUSH', place, id)
end
write('HSET', task, 'state', state)
redis.call('PERSIST', task)
if state == 'pending' then
  redis.call('HSETNX', task, 'pending_since', now_ns)
end
if group ~= '' then
  redis.call('HSET', task, 'group', group)
  if place == prefix .. 'g:' .. group then
    redis.pcall('SADD', groups, group)
  end
end
return 1
