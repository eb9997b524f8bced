-- message_field: a field of an encoded message that is text or bytes, by its number, the first from a place on, and where it ends; nil
-- for none, and for what is no message (protobuf). Tags of one byte, and numbers of one or two, are read here: a call
-- of varint takes 3,000 instructions of Redis more.
-- needs: varint
local function message_field(msg, number, at)
  local byte, wanted, ends = string.byte, number * 8 + 2, #msg
  at = at or 1
  while at and at <= ends do
    local tag, first, second = byte(msg, at, at + 2)
    local value
    if tag >= 128 then
      tag, at = varint(msg, at)
      first, second = byte(msg, at or 1, (at or 1) + 1)
    else
      at = at + 1
    end
    local wire_type = tag and tag % 8
    if wire_type == 2 or wire_type == 0 then
      if first and first < 128 then
        value, at = first, at + 1
      elseif second and second < 128 then
        value, at = first - 128 + 128 * second, at + 2
      else
        value, at = varint(msg, at)
      end
      if wire_type == 2 and value then
        if tag == wanted then
          return string.sub(msg, at, at + value - 1), at + value
        end
        at = at + value
      end
    elseif wire_type == 1 or wire_type == 5 then
      at = at + (wire_type == 1 and 8 or 4)
    else
      return nil
    end
  end
end
