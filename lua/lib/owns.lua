-- owns: whether a run still belongs to the worker that reports on it; writes nothing.
--
-- A lease names its run: whoever takes a task sets an expiry of its own. Nobody takes a task over before its last
-- expiry has passed by 7 s, so no two runs have the same expiry. The worker says which expiries it has set (several
-- while an answer to a renewal is outstanding). `run` is the token in the hash. It tells runs apart that a lost answer
-- has brought into the same second; it is empty where that cannot happen.
-- `expiry` is the score of the task's lease.
-- RETURNS
--   a  yes
--   o  no: it was recovered, and may be somebody else's by now
--   m  the task is gone
local function owns(expiry, task, expiries, run)
  if expiry and (expiry == expiries or string.find(expiries, ' ' .. expiry .. ' ', 1, true)) then
    if run == '' or redis.pcall('HGET', task, 'owner') == run then
      return 'a'
    end
  end
  return redis.call('EXISTS', task) == 1 and 'o' or 'm'
end
