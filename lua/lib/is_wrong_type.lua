-- is_wrong_type: whether a reply says that a key has another type than it should. Any other error ends the
-- script: a right that is missing, or memory, must not be taken for a task that is not there.
local function is_wrong_type(reply)
  if type(reply) ~= 'table' or not reply.err then
    return false
  end
  if string.find(reply.err, 'WRONGTYPE', 1, true) then
    return true
  end
  error(reply.err, 0)
end
