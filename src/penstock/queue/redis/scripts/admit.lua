-- admit: a key. Returns the number of rows looked at. See limits.lua.
local seen = admit_key(cmsgpack.unpack(ARGV[2]))
if seen > 0 then notify() end
return seen
