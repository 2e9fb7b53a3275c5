-- claim: the request. See claims.lua.
allow_without_memory()
return claim(cmsgpack.unpack(ARGV[2]))
