-- write: redis.call for what may be the first write of a script that moves tasks or makes room, which has to go on
-- when Redis is out of memory.
--
-- Redis refuses a command that may need memory only as long as the script has written nothing, and a deletion counts
-- as a write also where there was nothing to delete. So this costs something only then.
local function write(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then
    return reply
  end
  if string.find(reply.err, 'OOM', 1, true) then
    redis.pcall('ZREMRANGEBYRANK', KEYS[1], 1, 0)
  end
  return redis.call(...)
end
