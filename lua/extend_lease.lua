-- extend_lease: prolong the leases of the tasks a worker has in hand, up to 100 per call.
--
-- Transition: active stays active          Go: ExtendLease (a plain ZADD)
-- Differs from Go: only the leases of runs that are still the caller's, and it says which are not (W08);
-- never shortens a lease.
--
-- KEYS
--   1  lease    asynq:{<queue>}:lease   ZSET
--   then for each task
--   +1 task     asynq:{<queue>}:t:<id>  HASH
-- ARGV
--   1  expires  unix second at which the leases will end
--   then for each task
--   +1 id       task id
--   +2 expiries lease expiries the worker has set before; several are in blanks: " a b "
--   +3 run      token of the run
-- RETURNS one character for each task
--   1  prolonged
--   0  the run belongs to somebody else by now
--   2  the task is gone
-- needs: leases owns write
local lease, expires = KEYS[1], ARGV[1]

local asked, expiries = leases(lease, 2, 3)
local verdicts, prolonged = {}, {}
for n = 1, #asked do
  local arg = 3 * n - 1
  verdicts[n] = owns(expiries[n], KEYS[n + 1], ARGV[arg + 1], ARGV[arg + 2])
  if verdicts[n] == '1' then
    prolonged[#prolonged + 1] = expires
    prolonged[#prolonged + 1] = asked[n]
  end
end
if #prolonged > 0 then
  write('ZADD', lease, 'XX', 'GT', unpack(prolonged))
end
return table.concat(verdicts)
