-- count_failures: n failures count as processed and as failed; both totals start again together.
-- needs: count
local function count_failures(processed, processed_day, failed, failed_day, n, expire_at)
  local again = count(processed, processed_day, n, expire_at)
  count(failed, failed_day, n, expire_at)
  if again then
    redis.call('SET', failed, n)
  end
end
