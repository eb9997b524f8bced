-- message_field: a field of an encoded message that is text or bytes, by its number, the first from a place on, and where it ends; nil
-- for none, and for what is no message (protobuf).
-- needs: varint
local function message_field(msg, number, at)
  local tag, length = nil, nil
  at = at or 1
  while at and at <= #msg do
    tag, at = varint(msg, at)
    local wire_type = tag and tag % 8
    if wire_type == 0 then
      length, at = varint(msg, at)
    elseif wire_type == 1 or wire_type == 5 then
      at = at + (wire_type == 1 and 8 or 4)
    elseif wire_type == 2 then
      length, at = varint(msg, at)
      if length and tag == number * 8 + 2 then
        return string.sub(msg, at, at + length - 1), at + length
      end
      at = length and at + length
    else
      return nil
    end
  end
end
