-- window_of: what a uniqueness lock says for a window, which ends by its time alone: it is no task's id, so that nobody releases
-- it, Go's programs included.
local function window_of(id)
  return 'window\t' .. id
end
