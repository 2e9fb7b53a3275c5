-- settle: the settlements. Answers {'settled', statuses, parents whose children are to be stopped} or, with nothing
-- written, {'taken', id}. See finishing.lua and settling.lua.
local settlements = cmsgpack.unpack(ARGV[2])
local taken = taken_child(settlements)
if taken then return {'taken', taken} end
local answers, to_stop = settle(settlements)
if #settlements > 0 then ring() end
return {'settled', answers, to_stop}
