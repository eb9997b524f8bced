-- extend_lease: prolong the leases of the tasks a worker has in hand, up to 100 per call.
--
-- Transition: active stays active          Go: ExtendLease (a plain ZADD)
-- Differs from Go: only the leases of runs that are still the caller's, and it says which are not (W08);
-- never shortens a lease.
--
-- KEYS
--   1  lease     asynq:{<queue>}:lease   ZSET
-- ARGV
--   1  prefix    asynq:{<queue>}:
--   2  expires   unix second at which the leases will end
--   then for each task
--   +1 id        task id
--   +2 expiries  lease expiries the worker has set before; several stand between spaces: " a b "
--   +3 run       token of the run
-- DERIVED
--   prefix .. 't:' .. id
-- RETURNS one letter for each task
--   a  prolonged
--   o  the run belongs to somebody else by now
--   m  the task is gone
-- needs: nth owns write
local lease, prefix, expires = KEYS[1], ARGV[1], ARGV[2]

local count = (#ARGV - 2) / 3
local asked, words, prolonged = {}, {}, {}
for n = 1, count do
  asked[n] = nth(ARGV, 3, 3, n)
end
local leased = redis.call('ZMSCORE', lease, unpack(asked))
for n = 1, count do
  local id, expiries, run = nth(ARGV, 3, 3, n)
  words[n] = owns(leased[n], prefix .. 't:' .. id, expiries, run)
  if words[n] == 'a' then
    prolonged[#prolonged + 1] = expires
    prolonged[#prolonged + 1] = id
  end
end
if #prolonged > 0 then
  write('ZADD', lease, 'XX', 'GT', unpack(prolonged))
end
return table.concat(words)
