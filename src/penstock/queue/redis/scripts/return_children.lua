-- One batch of a requeued parent's children: parent id, how many. Answers {1 when it was the last, children that
-- are parents with children to be put back}.
local asked = cmsgpack.unpack(ARGV[2])
local parent = load(asked[1])
if not parent or ended(parent) then return {1, {}} end
local batch = retryable(parent, asked[2])
local answers, parents = requeue(batch, false)
ring()
-- Children that are refused would be found again: where all of a batch are, reconcile goes on later.
local refused = true
for i = 3, #answers, 3 do refused = refused and answers[i] ~= '' end
return {(#batch < asked[2] or refused) and 1 or 0, parents}
