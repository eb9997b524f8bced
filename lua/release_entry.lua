-- release_entry: tell that a scheduler no longer carries a periodic entry.
--
-- Transition: none                         Go: clearSchedulerEntries, as far as it goes
-- Another scheduler may show the entry at once.
--
-- KEYS
--   1  entry      asynq:{<queue>}:x:cron:<entry>  HASH
-- ARGV
--   1  scheduler  id of the scheduler
--   2  removed    unix second at which the entry was taken out of service; empty when only the scheduler ends
-- RETURNS
--   1  told
--   0  there is no such entry; nothing was written
local entry, scheduler, removed = KEYS[1], ARGV[1], ARGV[2]

if redis.call('EXISTS', entry) == 0 then
  return 0
end
if redis.call('HGET', entry, 'shown_by') == scheduler then
  redis.call('HDEL', entry, 'shown_by', 'shown_until')
end
if removed ~= '' then
  redis.call('HSET', entry, 'removed', removed)
end
return 1
