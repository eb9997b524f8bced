-- kept_fields: what an encoded message (protobuf) leaves to the one that takes its place, which has none of it: how often the task was
-- retried, its last error and when that was, its lock and its group; fields 6, 7, 11, 10 and 14.
--
-- RETURNS the bytes that are to stand behind the other message
-- needs: varint
local KEPT = { [6] = true, [7] = true, [10] = true, [11] = true, [14] = true }

local function kept_fields(msg)
  local kept, at = '', 1
  while at and at <= #msg do
    local from, tag, length = at, nil, nil
    tag, at = varint(msg, at)
    local wire_type = tag and tag % 8
    if wire_type == 0 then
      length, at = varint(msg, at)
    elseif wire_type == 1 or wire_type == 5 then
      at = at + (wire_type == 1 and 8 or 4)
    elseif wire_type == 2 then
      length, at = varint(msg, at)
      at = length and at + length
    else
      break
    end
    if at and KEPT[(tag - wire_type) / 8] then
      kept = kept .. string.sub(msg, from, at - 1)
    end
  end
  return kept
end
