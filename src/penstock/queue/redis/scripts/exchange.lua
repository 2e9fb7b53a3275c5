-- exchange: settlements and a claim request. Returns the values of claims.lua, with those of settle.lua in them, or
-- {'taken', id}.
local request = cmsgpack.unpack(ARGV[2])
local taken = taken_child(request[1])
if taken then return {'taken', taken} end
local answers, to_stop, to_resolve = settle(request[1])
local answer = claim(request[2], answers, to_stop, to_resolve)
if #answers > 0 then notify() end
return answer
