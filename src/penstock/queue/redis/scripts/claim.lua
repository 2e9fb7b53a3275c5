-- claim: the request. See claiming.lua.
return claim(cmsgpack.unpack(ARGV[2]))
