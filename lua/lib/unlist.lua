-- unlist: take ids out of the active list.
--
-- Many ids of a short list are taken out by writing the list anew, which is one call instead of one for
-- each id; a few, or those of a long list, are searched for, each from the side where it should be. A
-- key of another type holds no ids, and the tasks must not wait for it.
local function unlist(active, ids, sides)
  local length = #ids > 4 and redis.pcall('LLEN', active)
  if type(length) ~= 'number' or length > 4 * #ids then
    for n = 1, #ids do
      redis.pcall('LREM', active, sides[n], ids[n])
    end
    return
  end
  local leaving, staying = {}, {}
  for n = 1, #ids do
    leaving[ids[n]] = true
  end
  local listed = redis.call('LRANGE', active, 0, -1)
  for n = 1, #listed do
    if not leaving[listed[n]] then
      staying[#staying + 1] = listed[n]
    end
  end
  redis.call('DEL', active)
  if #staying > 0 then
    redis.call('RPUSH', active, unpack(staying))
  end
end
