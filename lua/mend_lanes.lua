-- mend_lanes: put right what is left of lanes: drop entries that say what is not so, and put parked tasks back into lanes that are looked
-- at. 1 to 100 entries per call.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  lease      asynq:{<queue>}:lease      ZSET
--   2  scheduled  asynq:{<queue>}:scheduled  ZSET
--   3  waiting    asynq:{<queue>}:x:waiting  ZSET
--   4  slots      asynq:{<queue>}:x:slots    ZSET
--   5  due        asynq:{<queue>}:x:due      ZSET
-- ARGV
--   1  prefix     asynq:{<queue>}:
--   2  what       slots: entries of slots; waiting: entries of waiting, also those that should be there
--   then for each entry
--   +1 entry      as it stands there, or should
-- DERIVED
--   prefix .. 't:' .. id
-- RETURNS how many entries were added or removed
-- needs: is_finished is_wrong_type nth
local lease, scheduled, waiting, slots, due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local prefix, what = ARGV[1], ARGV[2]

local gone, back, dues = {}, {}, {}
for n = 1, #ARGV - 2 do
  local entry = nth(ARGV, 3, 1, n)
  local is_so = false
  if what == 'slots' then
    local id = string.match(entry, ' (.*)$')
    is_so = id and (redis.call('ZSCORE', lease, id) or not is_finished(redis.pcall('HGET', prefix .. 't:' .. id, 'state')))
  else
    local wait, id = string.match(entry, '^([^ ]+ [^ ]+) (.*)$')
    local fields = id and redis.pcall('HMGET', prefix .. 't:' .. id, 'state', 'x_waits')
    is_so = id and not is_wrong_type(fields) and not is_finished(fields[1]) and fields[2] == wait
    if is_so and fields[1] == 'scheduled' and redis.call('ZSCORE', scheduled, id) then
      back[#back + 1], back[#back + 2] = 0, entry
      dues[#dues + 1], dues[#dues + 2] = 0, string.match(wait, '^[^ ]+')
    end
  end
  if not is_so then
    gone[#gone + 1] = entry
  end
end
local count = 0
if #gone > 0 then
  count = redis.call('ZREM', what == 'slots' and slots or waiting, unpack(gone))
end
if #back > 0 then
  count = count + redis.call('ZADD', waiting, unpack(back)) + redis.call('ZADD', due, 'NX', unpack(dues))
end
return count
