-- requeue: ids, whether the retry count is kept, old and new metadata. See requeues.lua.
local request = cmsgpack.unpack(ARGV[2])
local answers, parents = requeue(request[1], request[2], request[3])
admit_touched()
notify()
return {answers, parents}
