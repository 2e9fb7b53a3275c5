-- put_limit: key and limit. Returns 0 if the stored one allows as much. See limits.lua.
local key, limit = unpack(cmsgpack.unpack(ARGV[2]))
local raw = call('HGET', P .. 'limits', key)
local stored = raw and cmsgpack.unpack(raw)
if stored then
  if stored[L_CONCURRENT] == limit[L_CONCURRENT] and stored[L_STARTS] == limit[L_STARTS]
    and stored[L_PERIOD] == limit[L_PERIOD] then
    return 0
  end
  limit[L_NEXT] = stored[L_NEXT]
end
call('HSET', P .. 'limits', key, cmsgpack.pack(limit))
return 1
