-- Cancels one batch of a cancelled parent's children: parent id, limit. Returns {1 for the last batch, children that
-- have children to cancel}.
allow_without_memory()
local request = cmsgpack.unpack(ARGV[2])
local parent = load(request[1])
if not parent or ended(parent) then return {1, {}} end
local batch = call('ZRANGEBYSCORE', kids_of(parent), 0, 0, 'LIMIT', 0, request[2])
for _, id in ipairs(batch) do cancel_one(load(id)) end
apply_aftermath()
admit_touched()
notify()
local more = {}
for _, id in ipairs(to_stop) do
  if id ~= request[1] then more[#more + 1] = id end
end
return {#batch < request[2] and 1 or 0, more}
