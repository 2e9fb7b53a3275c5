-- exchange: the settlements and the request. As settle.lua, and what claiming.lua answers.
local asked = cmsgpack.unpack(ARGV[2])
local taken = taken_child(asked[1])
if taken then return {'taken', taken} end
local answers, to_stop = settle(asked[1])
local claims = claim(asked[2])
if #asked[1] > 0 then ring() end
return {'settled', answers, to_stop, claims}
