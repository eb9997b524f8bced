-- add_to_group: store a new task and let it wait in its group.
--
-- Transition: (absent) -> aggregating      Go: addToGroupCmd, addToGroupUniqueCmd
-- Differs from Go: as enqueue; and the lock's name is written into the hash, so that deleting the task
-- frees it (W23).
--
-- KEYS
--   1  group   asynq:{<queue>}:g:<group>   ZSET
--   2  groups  asynq:{<queue>}:groups      SET
--   3  task    asynq:{<queue>}:t:<id>      HASH
--   4  lock    asynq:{<queue>}:unique:...  STRING; the task key again when there is none
-- ARGV
--   1  id      task id
--   2  msg     encoded task message
--   3  ttl     seconds the lock lives; 0 for no lock
--   4  now     unix time in seconds
--   5  name    group name
-- RETURNS one character, as enqueue
-- needs: can_store take_lock
local group, groups, task, lock = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local id, msg, ttl, now, name = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local verdict = can_store(task, lock, id, msg, ttl)
if verdict == '1' then
  redis.call('SADD', groups, name)
  redis.call('ZADD', group, now, id)
  redis.call('HSET', task, 'msg', msg, 'state', 'aggregating', 'group', name)
  take_lock(task, lock, id, ttl)
end
return verdict
