-- message_parts: type, payload and headers of an encoded message (protobuf), in one pass: fields 1, 2 and 15. Of what is no message, as
-- far as it can be read.
--
-- needs: message_field varint
local function message_parts(msg, wants_headers, wants_payload)
  local at, tag, length = 1, nil, nil
  local task_type, payload, headers = '', nil, {}
  while at and at <= #msg do
    tag, at = varint(msg, at)
    local wire_type = tag and tag % 8
    if wire_type == 0 then
      length, at = varint(msg, at)
    elseif wire_type == 1 or wire_type == 5 then
      at = at + (wire_type == 1 and 8 or 4)
    elseif wire_type == 2 then
      length, at = varint(msg, at)
      if not length then
        break
      elseif tag == 10 then
        task_type = string.sub(msg, at, at + length - 1)
        if not wants_headers and not wants_payload then
          break
        end
      elseif tag == 18 and wants_payload then
        payload = string.sub(msg, at, at + length - 1)
      elseif tag == 122 and wants_headers then
        local entry = string.sub(msg, at, at + length - 1)
        headers[message_field(entry, 1) or ''] = message_field(entry, 2) or ''
      end
      at = at + length
    else
      break
    end
  end
  return task_type, payload, headers
end
