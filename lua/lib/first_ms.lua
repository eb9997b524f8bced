-- first_ms: from which score on an entry of x:due is a Unix millisecond, that of the next look (it was in 2004). 0 says to look now. What is
-- between them is the turn of a lane of a fair limit, in which tasks wait that may start: the lowest is served first.
local function first_ms()
  return 2 ^ 40
end
