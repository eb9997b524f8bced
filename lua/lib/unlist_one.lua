-- unlist_one: take an id out of the active list.
--
-- side: 1 searches from the head, where the youngest are; -1 looks at the hundred youngest and then searches
-- from the tail, so that an id at either end is found soon, however many ids of others lie between; 0 takes
-- every occurrence out of the whole list. A key of another type holds no ids.
local function unlist_one(active, side, id)
  if side == '-1' and type(redis.pcall('LPOS', active, id, 'MAXLEN', 100)) == 'number' then
    side = '1'
  end
  redis.pcall('LREM', active, side, id)
end
