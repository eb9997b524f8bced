-- leases: the ids among a call's arguments, of which each task has `step`, and the scores of their leases by one
-- look; at most 100.
-- RETURNS the ids; their scores, false for none
local function leases(lease, first, step)
  local ids = {}
  for arg = first, #ARGV, step do
    ids[#ids + 1] = ARGV[arg]
  end
  return ids, redis.call('ZMSCORE', lease, unpack(ids))
end
