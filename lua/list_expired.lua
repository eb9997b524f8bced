-- list_expired: the active tasks whose leases have ended, oldest first.
--
-- Transition: none; recover follows        Go: listLeaseExpiredCmd
-- Differs from Go: bounded; an id without a task is dropped here and reported with an empty message (W12); where many
-- have ended they can be met in the order of the active list, out of which they can then be taken without a search.
--
-- KEYS
--   1  lease        asynq:{<queue>}:lease   ZSET
--   2  active       asynq:{<queue>}:active  LIST
-- ARGV
--   1  task_prefix  asynq:{<queue>}:t:
--   2  cutoff       leases that ended at this unix second or earlier
--   3  limit        how many to look at, 100 at most
--   4  skip         how many to leave out, because nothing could be done about them before
--   5  order        lease, to look at the leases that have ended; active, to look at the active list from its tail
--   6  max_bytes    how many bytes of messages are enough
-- DERIVED
--   task_prefix .. id
-- RETURNS how many were looked at; 1 if there may be more; how many leases have ended; how many ids the active
--   list has; the unix second at which the next lease ends ('' for none); then for each task:
--   id, lease expiry, msg, owner, x_crashes ('' for none)
-- needs: is_wrong_type remove_active
local lease, active = KEYS[1], KEYS[2]
local task_prefix, cutoff, limit, skip = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local order, max_bytes = ARGV[5], tonumber(ARGV[6])

local alive = redis.call('ZRANGEBYSCORE', lease, '(' .. cutoff, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
local length = redis.pcall('LLEN', active)
local ids, expiries = {}, {}
if order == 'lease' then
  local expired = redis.call('ZRANGEBYSCORE', lease, '-inf', cutoff, 'WITHSCORES', 'LIMIT', skip, limit)
  for n = 1, #expired, 2 do
    ids[#ids + 1] = expired[n]
    expiries[#ids] = expired[n + 1]
  end
else
  local page = redis.pcall('LRANGE', active, -skip - limit, -skip - 1)
  local scores = not page.err and #page > 0 and redis.call('ZMSCORE', lease, unpack(page))
  for n = #page, 1, -1 do
    ids[#ids + 1] = page[n]
    expiries[#ids] = scores[n] and tonumber(scores[n]) <= tonumber(cutoff) and scores[n]
  end
end
local ended, more = redis.call('ZCOUNT', lease, '-inf', cutoff), #ids == limit and 1 or 0
local reply = { #ids, more, ended, is_wrong_type(length) and 0 or length, alive[2] or '' }
local bytes = 0
for n = 1, #ids do
  local id = ids[n]
  if bytes > max_bytes then
    reply[1], reply[2] = n - 1, 1
    break
  end
  local fields = expiries[n] and redis.pcall('HMGET', task_prefix .. id, 'msg', 'state', 'owner', 'x_crashes')
  local is_other = fields and is_wrong_type(fields)
  local msg = fields and not is_other and fields[1] or ''
  local elsewhere = msg ~= '' and fields[2] ~= 'active'
  if elsewhere then
    -- A lease that was left behind; the task has another place.
    redis.call('ZREM', lease, id)
  elseif fields and msg == '' then
    remove_active(active, lease, id, '0')
    if not is_other then
      redis.call('DEL', task_prefix .. id)
    end
  end
  if fields and not elsewhere then
    bytes = bytes + #msg
    reply[#reply + 1] = id
    reply[#reply + 1] = expiries[n]
    reply[#reply + 1] = msg
    reply[#reply + 1] = fields[3] or ''
    reply[#reply + 1] = fields[4] or ''
  end
end
return reply
