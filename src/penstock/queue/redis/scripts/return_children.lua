-- One batch of a requeued parent's children: parent id, how many. Answers {1 when it was the last, children that
-- are parents with children to be put back}.
local asked = cmsgpack.unpack(ARGV[2])
local parent = load(asked[1])
if not parent or ended(parent) then return {1, {}} end
local batch = retryable(parent, asked[2])
local _, parents = requeue(batch, false)
ring()
return {#batch < asked[2] and 1 or 0, parents}
