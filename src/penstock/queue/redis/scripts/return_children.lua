-- Requeues one batch of a requeued parent's children: parent id, limit. Returns {1 for the last batch, children that
-- have children to requeue}.
local request = cmsgpack.unpack(ARGV[2])
local parent = load(request[1])
if not parent or ended(parent) then return {1, {}} end
local batch = retryable(parent, request[2])
local _, parents = requeue(batch, false)
notify()
return {#batch < request[2] and 1 or 0, parents}
