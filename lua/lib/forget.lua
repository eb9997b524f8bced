-- lock_in: the lock that an encoded message names (field 10 of the protobuf message); nil for none.
local function lock_in(msg)
  local at = 1
  local function varint()
    local value, unit = 0, 1
    local byte
    repeat
      byte = string.byte(msg, at)
      if not byte then
        return nil
      end
      value, unit, at = value + byte % 128 * unit, unit * 128, at + 1
    until byte < 128
    return value
  end
  while at <= #msg do
    local tag = varint()
    local length = tag and (({ [1] = 8, [5] = 4 })[tag % 8] or tag % 8 == 2 and varint())
    if tag == 82 and length then
      return string.sub(msg, at, at + length - 1)
    elseif length then
      at = at + length
    elseif not tag or tag % 8 ~= 0 or not varint() then
      return nil -- not a message
    end
  end
end

-- forget: delete a task's hash and the lock it owns. For a task in a group, Go keeps the lock's name in
-- the message only (W23). A key of another type is left alone.
local function forget(prefix, id)
  local task = prefix .. 't:' .. id
  local fields = redis.pcall('HMGET', task, 'unique_key', 'group')
  if stray(fields) then
    return
  end
  local lock = fields[1]
  if not lock and fields[2] then
    lock = lock_in(redis.call('HGET', task, 'msg') or '')
  end
  redis.call('DEL', task)
  if lock then
    release(lock, id)
  end
end
