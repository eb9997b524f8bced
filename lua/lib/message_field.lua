-- message_field: a field of an encoded message that is text or bytes, by its number, the first from a place on, and where it ends; nil
-- for none, and for what is no message (protobuf). Most numbers in a message are of one byte, and read here, which halves the time.
-- needs: varint
local function message_field(msg, number, at)
  local byte, wanted, tag, length = string.byte, number * 8 + 2, nil, nil
  at = at or 1
  while at and at <= #msg do
    tag = byte(msg, at)
    if tag < 128 then
      at = at + 1
    else
      tag, at = varint(msg, at)
    end
    local wire_type = tag and tag % 8
    if wire_type == 2 then
      length = byte(msg, at)
      if length and length < 128 then
        at = at + 1
      else
        length, at = varint(msg, at)
      end
      if length and tag == wanted then
        return string.sub(msg, at, at + length - 1), at + length
      end
      at = length and at + length
    elseif wire_type == 0 then
      length, at = varint(msg, at)
    elseif wire_type == 1 or wire_type == 5 then
      at = at + (wire_type == 1 and 8 or 4)
    else
      return nil
    end
  end
end
