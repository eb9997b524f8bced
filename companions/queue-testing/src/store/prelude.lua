-- What a script finds when it runs: the library `redis`, KEYS and ARGV, and no way to leave globals behind.
local send, sha1hex, decode_json = ...
local protected_call, raw_set = pcall, rawset

redis = {
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  pcall = send,
  sha1hex = sha1hex,
}

cjson = { decode = decode_json }

function redis.call(...)
  local reply = send(...)
  if type(reply) == 'table' and reply.err then
    error(reply, 0)
  end
  return reply
end

function redis.error_reply(text)
  local bare = string.gsub(text, '^-', '')
  if not string.find(bare, ' ', 1, true) then
    bare = 'ERR ' .. bare
  end
  return { err = bare }
end

function redis.status_reply(text)
  return { ok = text }
end

function redis.log() end

function redis.setresp() end

function redis.replicate_commands()
  return true
end

for _, name in ipairs({ 'print', 'dofile', 'loadfile', 'require', 'module', 'package', 'collectgarbage' }) do
  _G[name] = nil
end

setmetatable(_G, {
  __index = function(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
  end,
  __newindex = function(_, name)
    error("Script attempted to create global variable '" .. tostring(name) .. "'", 2)
  end,
})

return function(script, keys, arguments)
  raw_set(_G, 'KEYS', keys)
  raw_set(_G, 'ARGV', arguments)
  return protected_call(script)
end
