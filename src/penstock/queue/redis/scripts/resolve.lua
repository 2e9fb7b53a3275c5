-- resolve: a place and the number of rows. See dependencies.lua. Returns {1, places to continue from}.
allow_without_memory()
local request = cmsgpack.unpack(ARGV[2])
local left = resolve({request[1]}, request[2])
admit_touched()
notify()
return {1, left}
