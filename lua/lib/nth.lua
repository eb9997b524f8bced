-- nth: the arguments of the n-th task of a call, which has `each` of them for every task, from `first` on.
local function nth(values, first, each, n)
  local at = first + each * (n - 1)
  return unpack(values, at, at + each - 1)
end
