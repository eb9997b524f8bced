-- put_off_duty: a duty was done; say when it is looked at next.
--
-- Transition: none                         Go: none
--
-- KEYS
--   1  duties  asynq:x:duties  ZSET of <duty> <subject>, see take_duties
-- ARGV
--   1  duty    as it stands in the set
--   2  held    its score since it was taken
--   3  next_look  its score for the next look; empty when there is nothing more to do
-- RETURNS
--   1  done
--   0  it was asked for again meanwhile, or another leader has it; nothing was written
-- needs: write
local duties, duty, held, next_look = KEYS[1], ARGV[1], ARGV[2], ARGV[3]

if tonumber(redis.call('ZSCORE', duties, duty)) ~= tonumber(held) then
  return 0
end
if next_look == '' then
  redis.call('ZREM', duties, duty)
else
  write('ZADD', duties, next_look, duty)
end
return 1
