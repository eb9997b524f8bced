-- probe: which commands the user of this connection may not call; changes nothing.
--
-- Not one of the scripts in lua/: it is sent once at the start of a program, and not loaded on every
-- connection. From Redis 7 on it runs under the flag no-writes: Redis then looks at the rights of a command
-- and refuses it if it writes. Older versions are only sent calls that do nothing on a key that is not there.
--
-- KEYS
--   1  a key that nobody uses, of the pattern that the user must be able to reach
-- ARGV for each command: its name, how many words follow, and these; a word that is KEY stands for the key
-- RETURNS the names of those that were refused for lack of a right
local missing, at = {}, 1
while ARGV[at] do
  local words, count = { ARGV[at] }, tonumber(ARGV[at + 1])
  for n = 1, count do
    local word = ARGV[at + 1 + n]
    words[n + 1] = word == 'KEY' and KEYS[1] or word
  end
  at = at + 2 + count
  local reply = redis.pcall(unpack(words))
  local refusal = type(reply) == 'table' and reply.err
  -- The first up to Redis 7.0, the second since, and in Valkey.
  local denied = { "executing the script can't", 'ACL failure in script', 'NOPERM' }
  for n = 1, #denied do
    if refusal and string.find(refusal, denied[n], 1, true) then
      missing[#missing + 1] = words[1]
      break
    end
  end
end
return missing
