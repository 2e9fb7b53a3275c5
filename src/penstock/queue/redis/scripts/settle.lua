-- settle: settlements. Returns {'settled', statuses as digits, parents with children to cancel, places to resolve}, the
-- last two nil if there are none, or, with nothing written, {'taken', id}. See plain_ends.lua and settlements.lua.
local settlements = cmsgpack.unpack(ARGV[2])
local taken = taken_child(settlements)
if taken then return {'taken', taken} end
local answers, to_stop, to_resolve = settle(settlements)
if #answers > 0 then notify() end
return {'settled', answers, to_stop, to_resolve}
