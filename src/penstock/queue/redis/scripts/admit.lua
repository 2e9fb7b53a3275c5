-- admit: a key. Returns the number of rows looked at. See limits.lua.
limit_keys[cmsgpack.unpack(ARGV[2])] = true
local seen = admit_touched()
if seen > 0 then notify() end
return seen
