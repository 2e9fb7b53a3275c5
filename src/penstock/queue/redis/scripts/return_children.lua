-- Requeues one batch of a requeued parent's children: parent id, limit. Returns {1 for the last batch, children that
-- have children to requeue}.
local request = cmsgpack.unpack(ARGV[2])
local parent = load(request[1])
if not parent or ended(parent) then return {1, {}} end
local batch = retryable(parent, request[2])
local answers, parents = requeue(batch, false, {})
admit_touched()
notify()
-- Refused children would be found again: if all of a batch are refused, reconcile continues later.
local refused = true
for i = 3, #answers, 3 do refused = refused and answers[i] ~= '' end
return {(#batch < request[2] or refused) and 1 or 0, parents}
