-- enqueue_tick: claim a tick of a periodic entry and enqueue its task, in one step.
--
-- Transition: (absent) -> pending, scheduled or aggregating      Go: none; each of its schedulers enqueues
-- Differs from Go: of any number of schedulers one enqueues a tick. Every tick up to the field upto is dealt with. If a
-- failover has lost that field, the task id, which names the tick, refuses a second task as long as the first is there.
--
-- KEYS
--   1  entry    asynq:{<queue>}:x:cron:<entry>          HASH
--   2  history  asynq:{<queue>}:x:cron-history:<entry>  LIST
--   3  task     asynq:{<queue>}:t:<id>                  HASH
--   4  lock     asynq:{<queue>}:unique:...              STRING; the task key again when there is none
--   5  place    asynq:{<queue>}:pending LIST, asynq:{<queue>}:scheduled ZSET or asynq:{<queue>}:g:<group> ZSET
--   6  groups   asynq:{<queue>}:groups                  SET
-- ARGV
--   1  why       tick; missed, for one that is made up for; waiting, for one that waited for the run before;
--                let-go, to enqueue nothing and deal with the ticks up to this one; manual; forced, for
--                manual whatever the run before does
--   2  tick      unix second of the tick; for let-go the last one; for manual the present one
--   3  now_ns    unix time in nanoseconds
--   4  id        task id
--   5  msg       encoded task message
--   6  ttl       seconds the lock lives; 0 for no lock, below 0 for a window
--   7  state     pending, scheduled or aggregating
--   8  score     in place; for a list now_ns
--   9  group     group name; empty for none
--   10 overlap   allow, skip or queue: what to do while the task of the run before is unfinished
--   11 max_runs  how many runs there are at the most; 0 for any number
--   12 from      unix second of the first tick that is let go; else the tick
-- DERIVED
--   asynq:{<queue>}:t:<id of the run before>  HASH
-- RETURNS an array: a word, upto, id of the last run, its time in nanoseconds, upto as it was before; 0 if there was none
--   enqueued   the task is stored
--   exists     the tick's task is stored already: the claim was lost, or the answer to it
--   claimed    the tick was dealt with before; nothing was written
--   paused     nothing is enqueued
--   unfinished the run before is unfinished; nothing is enqueued
--   waiting    as unfinished, and the tick is kept to be asked for again
--   exhausted  there were as many runs as there may be; nothing is enqueued
--   locked     another task holds the uniqueness lock; nothing is enqueued
--   let-go     what was asked for
--   ahead      the tick is in the future by the clock of Redis; nothing was written
-- needs: can_store store
local entry, history, task, lock, place, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local why, tick, now_ns, id, msg, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local state, score, group, overlap, max_runs, from = ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12]

local known = redis.call('HMGET', entry, 'upto', 'last_id', 'last_ns', 'runs', 'paused', 'waiting')
local upto, last_id, last_ns = known[1] or '0', known[2] or '', known[3] or '0'
local runs, paused, waiting = tonumber(known[4] or 0), known[5], known[6]
local before = upto
local manual = why == 'manual' or why == 'forced'

local function answer(word)
  if not known[1] then
    -- The entry was forgotten meanwhile; whoever carries it writes it anew.
    redis.call('EXPIRE', entry, 2592000)
  end
  return {word, upto, last_id, last_ns, before}
end

local function remember(outcome, which, first)
  -- A history of another type never stands in the way of a task.
  redis.pcall('LPUSH', history, '{"outcome":"' .. outcome .. '","why":"' .. why .. '","tick":' .. which
    .. ',"from":' .. first .. ',"at_ns":' .. now_ns .. ',"task":"' .. id .. '"}')
  redis.pcall('LTRIM', history, 0, 999)
  redis.pcall('EXPIRE', history, 2592000)
end

-- deal_with: no scheduler will ask for this tick again.
local function deal_with(outcome)
  if why == 'waiting' then
    redis.call('HDEL', entry, 'waiting')
  elseif not manual then
    redis.call('HSET', entry, 'upto', tick)
    upto = tick
  end
  if outcome then
    remember(outcome, tick, from)
  end
end

if why == 'waiting' then
  if waiting ~= tick then
    return answer('claimed')
  end
  if paused then
    return answer('waiting')
  end
elseif not manual then
  if tonumber(tick) <= tonumber(upto) then
    return answer('claimed')
  end
  -- A clock that is ahead must not deal with the ticks of the days to come.
  if tonumber(tick) > tonumber(redis.call('TIME')[1]) + 60 then
    return answer('ahead')
  end
  if why == 'let-go' then
    deal_with('missed')
    return answer('let-go')
  end
  if paused then
    deal_with(nil)
    return answer('paused')
  end
end

if manual and last_id == id then
  -- A call that is sent again, as its answer was lost; the task may be done and gone by now.
  return answer('exists')
end
if max_runs ~= '0' and runs >= tonumber(max_runs) then
  deal_with(nil)
  return answer('exhausted')
end

if redis.call('EXISTS', task) == 1 then
  deal_with(nil)
  last_id = id
  redis.call('HSET', entry, 'last_id', id)
  return answer('exists')
end

if overlap ~= 'allow' and why ~= 'forced' and last_id ~= '' then
  local last = redis.pcall('HGET', string.sub(task, 1, -#id - 1) .. last_id, 'state')
  if type(last) == 'string' and last ~= 'completed' and last ~= 'archived' then
    if overlap == 'skip' or manual then
      deal_with('unfinished')
      return answer('unfinished')
    end
    if why ~= 'waiting' then
      deal_with(nil)
      if waiting then
        -- One run makes up for all that come while the one before is unfinished.
        remember('unfinished', waiting, waiting)
      end
      redis.call('HSET', entry, 'waiting', tick)
    end
    return answer('waiting')
  end
end

if can_store(task, id, msg, lock, ttl) ~= 'a' then
  deal_with('locked')
  return answer('locked')
end
local listed = state == 'aggregating' and groups
store(state, place, task, id, msg, score, lock, ttl, group, listed)
last_id, last_ns = id, now_ns
redis.call('HSET', entry, 'last_id', id, 'last_ns', now_ns, 'last_tick', tick, 'runs', runs + 1)
if why ~= 'waiting' and not manual and waiting then
  -- The run that waited is made up for by this one.
  redis.call('HDEL', entry, 'waiting')
end
deal_with('enqueued')
return answer('enqueued')
