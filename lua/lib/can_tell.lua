-- can_tell: an error where one of the keys to which members of flows tell their outcomes has another type, before
-- anything was written.
local function can_tell(outcomes, lists)
  redis.call('LLEN', outcomes)
  redis.call('SCARD', lists)
end
