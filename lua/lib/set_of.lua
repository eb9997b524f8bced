-- set_of: the sorted set that holds the ids of this state, or of this group.
local function set_of(prefix, state, group)
  return prefix .. (group and 'g:' .. group or state)
end
