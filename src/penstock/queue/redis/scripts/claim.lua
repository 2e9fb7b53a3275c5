-- claim: the request. See claiming.lua.
insist()
return claim(cmsgpack.unpack(ARGV[2]))
