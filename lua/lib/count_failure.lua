-- count_failure: a failure counts as processed and as failed; both totals start again together.
local function count_failure(processed, processed_day, failed, failed_day, expire_at)
  local again = count(processed, processed_day, 1, expire_at)
  count(failed, failed_day, 1, expire_at)
  if again then
    redis.call('SET', failed, 1)
  end
end
