-- register_entry: tell that a scheduler carries a periodic entry, and what it is.
--
-- Transition: none                         Go: none; its schedulers know nothing of each other
-- Ticks count from the first time an entry is registered, from a change of its spec, and from when it is
-- registered again after it was removed, and so do its runs; after that all that a fleet misses is known. Nor has it
-- missed anything between its end and a change that puts the end off.
-- If a failover has lost a change, the next heartbeat of who made it tells it again: registrations are counted.
--
-- KEYS
--   1  entry      asynq:{<queue>}:x:cron:<entry>  HASH
-- ARGV
--   1  occasion   register when a scheduler takes the entry up; beat when it still carries it
--   2  now        unix time in seconds
--   3  known      unix second up to which this scheduler knows the ticks to be dealt with; 0 for none
--   4  scheduler  id of the scheduler
--   5  shown_ttl  seconds for which the scheduler may be the one that shows the entry
--   6  ttl        seconds until the entry is forgotten
--   7  spec       cron spec with its time zone, and start
--   8  ends       unix second after which there are no ticks; empty for none
--   9  own        the number of this scheduler's registration of the entry; 0 if it has none yet
--   then for each field that describes the entry
--   +1 field      its name
--   +2 value      its value
-- RETURNS an array: a word, upto, waiting tick or empty, last id, its time in ns, paused since or empty, runs, number of the
-- last registration, upto as it was before; 0 if there was none
--   shown   this scheduler shows the entry to Go's tools
--   known   another one does
--   ahead   the scheduler's clock is ahead of that of Redis; nothing was written, and nothing else returned
-- needs: nth
local entry = KEYS[1]
local occasion, now, known, scheduler = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local shown_ttl, ttl, spec, ends, own = ARGV[5], ARGV[6], ARGV[7], ARGV[8], tonumber(ARGV[9])

local farthest = redis.call('TIME')[1] + 60
if tonumber(now) > farthest then
  return {'ahead'}
end
local have = redis.call('HMGET', entry, 'upto', 'spec', 'removed', 'shown_by', 'shown_until', 'ends', 'registered')
local upto, changed = have[1], have[2] and have[2] ~= spec
local was_over = (have[6] or '') ~= '' and have[6] ~= ends and tonumber(have[6]) < tonumber(now)
local registered = tonumber(have[7] or 0)
local is_lost = occasion == 'beat' and registered < own
if not upto then
  upto = known ~= '0' and known or now
elseif occasion == 'register' and (have[3] or changed or was_over) then
  -- The present second may hold a tick of either spec. What is farther than any tick can be is left from a clock that was wrong.
  upto = math.max(tonumber(upto) <= farthest and upto or 0, now - 1)
elseif is_lost and changed then
  -- What is there counts the ticks of the spec before.
  upto = math.max(upto, known)
end
if not have[1] or not have[2] or occasion == 'register' or is_lost then
  registered = math.max(registered + 1, own)
  redis.call('HSET', entry, 'spec', spec, 'ends', ends, 'registered', string.format('%.0f', registered))
  for n = 1, (#ARGV - 9) / 2 do
    redis.call('HSET', entry, nth(ARGV, 10, 2, n))
  end
end
redis.call('HSET', entry, 'upto', string.format('%.0f', upto))
if have[3] then
  redis.call('HDEL', entry, 'removed')
end
if have[3] and occasion == 'register' then
  -- A tick that waited for a run when the entry was removed is one of that time, and so are the runs of which there are to be so many.
  -- Who has carried it all the time goes on with it.
  redis.call('HDEL', entry, 'waiting', 'runs')
end
local word = 'known'
if not have[4] or have[4] == scheduler or tonumber(have[5] or 0) < tonumber(now) then
  word = 'shown'
  redis.call('HSET', entry, 'shown_by', scheduler, 'shown_until', string.format('%.0f', now + shown_ttl))
end
redis.call('EXPIRE', entry, ttl)
local is = redis.call('HMGET', entry, 'upto', 'waiting', 'last_id', 'last_ns', 'paused', 'runs')
return {word, is[1], is[2] or '', is[3] or '', is[4] or '0', is[5] or '', is[6] or '0', string.format('%.0f', registered),
  have[1] or '0'}
