-- spend: let something start that a limiter counts, or say how long it has to wait; or let nothing start for a while.
--
-- Transition: none                         Go: none
-- GCRA: the value is the millisecond at which the next start would be due without a burst.
--
-- KEYS
--   1  limiter   asynq:x:limit:<name>  STRING
-- ARGV
--   1  interval  milliseconds between two starts
--   2  burst     how many may start at once after a rest
--   3  count     1 to start something; 0 to let nothing start
--   4  hold      of the latter, for how many milliseconds
-- RETURNS 0 if it may start, else the milliseconds after which it is worth asking again
local limiter, interval, burst = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local count, hold = tonumber(ARGV[3]), tonumber(ARGV[4])

local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local tat = math.max(tonumber(redis.call('GET', limiter)) or 0, now)
local wait = tat - (burst - 1) * interval - now
if count == 0 then
  tat = math.max(tat, now + hold + (burst - 1) * interval)
elseif wait > 0 then
  return math.ceil(wait)
else
  tat = tat + interval
end
if tat > now then
  redis.call('SET', limiter, string.format('%.3f', tat), 'PX', math.ceil(tat - now) + 1)
end
return 0
