-- store_all: store the new tasks of a call, as far as they may be; tasks that are in each other's way are told apart. All come
-- into the same state and place. `push` is how they come into the list of pending ones: LPUSH unless it says otherwise.
--
-- Each task has its arguments from `first` on: id, msg; where `each` is 4 or 6 also lock, ttl; where it is 6 also its score,
-- group. Pending tasks are so since now_ns.
-- RETURNS a letter for each task, as can_store
-- needs: can_store store
local function store_all(state, place, groups, task_prefix, first, each, now_ns, push)
  local MSG, LOCK, TTL, SCORE, GROUP = 1, 2, 3, 4, 5 -- behind the id
  local args, has_locks = ARGV, each > 2
  -- One look tells whether any id is taken; only then is each looked at by itself.
  local tasks = {}
  for at = first, #args, each do
    tasks[#tasks + 1] = task_prefix .. args[at]
  end
  local all_free = redis.call('EXISTS', unpack(tasks)) == 0
  local words, entries, seen = {}, {}, {}
  for n = 1, #tasks do
    local at, task = first + each * (n - 1), tasks[n]
    local lock = has_locks and args[at + TTL] ~= '0' and args[at + LOCK]
    local word = 'a'
    if seen[task] then
      word = 'i'
    elseif lock and seen[lock] then
      word = 'l'
    elseif lock or not all_free then
      word = can_store(task, args[at], args[at + MSG], lock, lock and args[at + TTL] or '0')
    end
    words[n] = word
    if word == 'a' then
      seen[task] = true
      if lock then
        seen[lock] = true
      end
      if state ~= 'pending' then
        entries[#entries + 1] = args[at + SCORE]
      end
      entries[#entries + 1] = args[at]
    end
  end
  if #entries == 0 then
    return table.concat(words)
  end
  -- List and set first, as in store.
  if groups then
    redis.call('SADD', groups, args[first + GROUP])
  end
  redis.call(push or state == 'pending' and 'LPUSH' or 'ZADD', place, unpack(entries))
  for n = 1, #tasks do
    if words[n] == 'a' then
      local at = first + each * (n - 1)
      if has_locks then
        store(state, false, tasks[n], args[at], args[at + MSG], now_ns, args[at + LOCK], args[at + TTL], args[at + GROUP])
      else
        store(state, false, tasks[n], args[at], args[at + MSG], now_ns)
      end
    end
  end
  return table.concat(words)
end
