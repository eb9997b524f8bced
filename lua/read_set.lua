-- read_set: some tasks of a set that is to be aggregated, at most 100 and about 4 MiB.
--
-- Transition: none                         Go: readAggregationSetCmd (all at once)
-- Differs from Go: in pages; an id without a task is taken out of the set instead of being given to the
-- aggregator as an empty task.
--
-- KEYS
--   1  set          asynq:{<queue>}:g:<group>:<uuid>, or a set that was aggregated  ZSET
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  from         how many tasks to leave out
-- DERIVED
--   task_prefix .. id
-- RETURNS how many ids without a task were dropped, then for each task: id, msg
local set, task_prefix, from = KEYS[1], ARGV[1], tonumber(ARGV[2])

local reply, bytes, missing = { 0 }, 0, {}
for _, id in ipairs(redis.call('ZRANGE', set, from, from + 99)) do
  local task = task_prefix .. id
  local msg = redis.pcall('HGET', task, 'msg')
  if type(msg) == 'string' and msg ~= '' then
    reply[#reply + 1] = id
    reply[#reply + 1] = msg
    bytes = bytes + #msg
    if bytes > 4194304 then
      break
    end
  else
    missing[#missing + 1] = id
    if type(msg) ~= 'table' then
      redis.call('DEL', task)
    end
  end
end
for _, id in ipairs(missing) do
  redis.call('ZREM', set, id)
end
reply[1] = #missing
return reply
