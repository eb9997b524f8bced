-- varint: a number of an encoded message that begins at a place, and where it ends; nil where the message does (protobuf).
local function varint(text, at)
  local value, unit = 0, 1
  local byte
  repeat
    byte = string.byte(text, at)
    if not byte then
      return nil
    end
    value, unit, at = value + byte % 128 * unit, unit * 128, at + 1
  until byte < 128
  return value, at
end
