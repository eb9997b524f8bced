-- store: store a new task that can_store has let in: list or set of its state, hash, lock.
--
-- place is false where the task is there already; at is since when it is pending (nanoseconds), else its score; lock may be
-- nil, and group '', where there is none; of a ttl below 0 the lock is a window. A task that comes from elsewhere has all of its hash but the state in `fields`.
-- A task that is scheduled keeps its group in a field of ours: where Go found the field group, its forward would put
-- the task into a group that is not listed (W20), in which nobody looks.
-- needs: window_of
local function store(state, place, task, id, msg, at, lock, ttl, group, groups, fields)
  -- List and set first: if one has another type, the error comes before the task was written.
  if place and state == 'pending' then
    redis.call('LPUSH', place, id)
  elseif place then
    if groups and group ~= '' then
      redis.call('SADD', groups, group)
    end
    redis.call('ZADD', place, at, id)
  end
  if fields then
    redis.call('HSET', task, 'state', state, unpack(fields))
  elseif state == 'pending' then
    redis.call('HSET', task, 'msg', msg, 'state', state, 'pending_since', at)
  elseif group == '' then
    redis.call('HSET', task, 'msg', msg, 'state', state)
  else
    redis.call('HSET', task, 'msg', msg, 'state', state, state == 'aggregating' and 'group' or 'x_group', group)
  end
  if lock and ttl ~= '0' then
    local seconds = string.match(ttl, '^-(.*)')
    redis.call('SET', lock, seconds and window_of(id) or id, 'EX', seconds or ttl)
    if not fields then
      redis.call('HSET', task, 'unique_key', lock)
    end
  end
end
