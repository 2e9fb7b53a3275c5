-- requeue: ids, whether spent retries stay spent. See requeueing.lua.
local asked = cmsgpack.unpack(ARGV[2])
local answers, parents = requeue(asked[1], asked[2])
ring()
return {answers, parents}
