-- exchange: settlements and a claim request. Returns the values of settle.lua and of claims.lua.
local request = cmsgpack.unpack(ARGV[2])
local taken = taken_child(request[1])
if taken then return {'taken', taken} end
local answers, to_stop, to_resolve = settle(request[1])
local claims = claim(request[2])
if #request[1] > 0 then notify() end
return {'settled', answers, to_stop, to_resolve, claims}
