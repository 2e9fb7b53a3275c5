-- settle: settlements. Returns {'settled', statuses, parents with children to cancel, places to resolve} or, with nothing written,
-- {'taken', id}. See plain_ends.lua and settlements.lua.
local settlements = cmsgpack.unpack(ARGV[2])
local taken = taken_child(settlements)
if taken then return {'taken', taken} end
local answers, to_stop, to_resolve = settle(settlements)
if #settlements > 0 then notify() end
return {'settled', answers, to_stop, to_resolve}
