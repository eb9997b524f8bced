-- count: add n to a day counter and a total.
--
-- A new day counter lives until expire_at. A total that would pass 2^63-1 starts again at n, as in
-- asynq. A counter of another type is left alone: statistics never stand in the way of a task.
-- RETURNS whether the total started again.
local function count(total, day, n, expire_at)
  if redis.pcall('INCRBY', day, n) == n then
    redis.call('EXPIREAT', day, expire_at)
  end
  local sum = redis.pcall('INCRBY', total, n)
  if type(sum) == 'table' and sum.err and string.find(sum.err, 'overflow', 1, true) then
    redis.call('SET', total, n)
    return true
  end
  return false
end
