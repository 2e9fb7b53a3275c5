-- One batch of a cancelled parent's children: parent id, how many. Answers {1 when it was the last, children that
-- are parents with children to be stopped}.
insist()
local asked = cmsgpack.unpack(ARGV[2])
local parent = load(asked[1])
if not parent or ended(parent) then return {1, {}} end
local batch = call('ZRANGEBYSCORE', kids_of(parent), 0, 0, 'LIMIT', 0, asked[2])
for _, id in ipairs(batch) do cancel_one(load(id)) end
apply_aftermath()
ring()
local more = {}
for _, id in ipairs(to_stop) do
  if id ~= asked[1] then more[#more + 1] = id end
end
return {#batch < asked[2] and 1 or 0, more}
