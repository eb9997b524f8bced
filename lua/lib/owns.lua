-- owns: whether a run still belongs to the worker that reports on it; writes nothing.
--
-- A run is named by the token its dequeue wrote into the hash (field owner; Go neither reads nor writes
-- it) and by the part of the message that changes when anybody else has retried the task in between.
-- Both are needed: Go leaves the token alone, and a recovery by us may leave the message alone.
-- RETURNS
--   '1'  yes
--   '0'  no: it was recovered, and may be somebody else's by now
--   '2'  the task is gone
local function owns(task, run, offset, tail)
  local fields = redis.pcall('HMGET', task, 'state', 'owner', 'msg')
  if fields.err then
    return '0'
  end
  local msg = fields[3]
  if not msg then
    return '2'
  end
  if fields[1] ~= 'active' or (fields[2] or '') ~= run or string.sub(msg, offset + 1) ~= tail then
    return '0'
  end
  return '1'
end
