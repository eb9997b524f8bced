-- holders_of: the keys of a queue by name.
local function holders_of(pending, active, lease, scheduled, retry, archived, completed, staged, aggregated)
  local sets = { scheduled, retry, archived, completed }
  return { pending = pending, active = active, lease = lease, sets = sets, staged = staged, aggregated = aggregated }
end
