-- lanes_of: the lanes that a task is in, by its message: one for each rule that it falls under, named <rule>:<key>. Writes nothing.
--
-- A name has no space in it, because spaces separate what is stored. A key above 96 bytes is cut between two characters, and ends in its SHA-1. A lane in strict
-- order is the first: a task has to be at turn there before it asks for anything else. So is that of a fair limit, under which a task
-- without the key has the empty one.
-- RETURNS a function of a message that returns a list of names
-- needs: message_field
local MAX_KEY, MAX_JSON = 96, 4096

local function lane_name(rule, key)
  if string.find(key, '[%% ]') then
    key = string.gsub(key, '[%% ]', { ['%'] = '%25', [' '] = '%20' })
  end
  if #key > MAX_KEY then
    local cut = MAX_KEY - 40
    -- Not within a character.
    while cut > 0 and string.find(key, '^[\128-\191]', cut + 1) do
      cut = cut - 1
    end
    key = string.sub(key, 1, cut) .. redis.sha1hex(key)
  end
  return rule.name .. ':' .. key
end

-- A number below 2^53 is as it is written; what is no text, number or boolean is no key.
local function key_at(value, path)
  for step in string.gmatch(path, '[^/]+') do
    if type(value) ~= 'table' then
      return nil
    end
    value = value[step]
  end
  if type(value) == 'number' then
    return value == math.floor(value) and math.abs(value) < 2 ^ 53 and string.format('%.0f', value) or string.format('%.17g', value)
  elseif type(value) == 'boolean' then
    return tostring(value)
  end
  return type(value) == 'string' and value or nil
end

local function falls_under(rule, task_type)
  for n = 1, #rule.types do
    local pattern = rule.types[n]
    local is_prefix = string.sub(pattern, -1) == '*'
    if pattern == task_type or is_prefix and string.sub(task_type, 1, #pattern - 1) == string.sub(pattern, 1, -2) then
      return true
    end
  end
  return false
end

-- The value of the header that a rule names; of several, the last. Everybody writes the name of an entry first, but any other order is read, too.
local function header_of(msg, rule)
  local name, value, entry = rule.path, nil, nil
  local at = string.find(msg, name, 1, true) and 1
  rule.start = rule.start or #name < 128 and '\10' .. string.char(#name) .. name
  local start = rule.start
  while at and at <= #msg do
    entry, at = message_field(msg, 15, at)
    if entry and start and string.sub(entry, 1, #start) == start then
      value = message_field(entry, 2, #start + 1) or ''
    elseif entry and not (start and string.byte(entry) == 10) and (message_field(entry, 1) or '') == name then
      value = message_field(entry, 2) or ''
    end
  end
  return value
end

local function lanes_of(rules)
  local wants_type, wants_payload = false, false
  for n = 1, #rules do
    wants_type = wants_type or rules[n].types or rules[n].kind == 'type'
    wants_payload = wants_payload or rules[n].kind == 'payload'
  end
  return function(msg)
    local task_type, payload = wants_type and message_field(msg, 1) or '', wants_payload and message_field(msg, 2)
    local names, body = {}, nil
    for n = 1, #rules do
      local rule, key = rules[n], nil
      if rule.types and not falls_under(rule, task_type) then
        key = nil
      elseif rule.kind == 'header' then
        key = header_of(msg, rule)
      elseif rule.kind == 'type' then
        key = task_type
      elseif rule.kind == 'queue' then
        key = ''
      elseif payload and #payload <= MAX_JSON then
        if body == nil then
          local is_read, value = pcall(cjson.decode, payload)
          body = is_read and value or false
        end
        key = key_at(body, rule.path)
      end
      key = key or rule.is_fair and ''
      if key then
        table.insert(names, (rule.is_strict or rule.is_fair) and 1 or #names + 1, lane_name(rule, key))
      end
    end
    return names
  end
end
