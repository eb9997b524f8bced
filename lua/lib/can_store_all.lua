-- can_store_all: can_store for each task of a batch, whose keys (task, lock) begin at first_key and whose
-- arguments (id, msg, ttl, ...) at first_arg, so many for each; tasks of one batch that are in each
-- other's way are told apart. Writes nothing.
-- RETURNS the verdicts, and where the keys and the arguments of the admitted tasks begin.
-- needs: can_store
local function can_store_all(first_key, first_arg, arguments)
  -- One look tells whether any id is taken; only then is each looked at by itself.
  local tasks = {}
  for key = first_key, #KEYS, 2 do
    tasks[#tasks + 1] = KEYS[key]
  end
  local all_free = redis.call('EXISTS', unpack(tasks)) == 0
  local verdicts, keys, args, seen = {}, {}, {}, {}
  for n = 1, #tasks do
    local key, arg = first_key + 2 * (n - 1), first_arg + arguments * (n - 1)
    local task, lock, ttl = tasks[n], KEYS[key + 1], ARGV[arg + 2]
    local verdict
    if seen[task] then
      verdict = '0'
    elseif seen[lock] then
      verdict = '3'
    elseif all_free and ttl == '0' then
      verdict = '1'
    else
      verdict = can_store(task, lock, ARGV[arg], ARGV[arg + 1], ttl)
    end
    if verdict == '1' then
      seen[task], seen[lock] = true, true
      keys[#keys + 1] = key
      args[#args + 1] = arg
    end
    verdicts[n] = verdict
  end
  return verdicts, keys, args
end
