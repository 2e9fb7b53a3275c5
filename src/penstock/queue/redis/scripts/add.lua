-- add: see additions.lua. Returns {'added', id, status, run, hit, ...}, {'full', pending} or {'taken', id}; in the last
-- two cases nothing is written.
local id = taken_id()
if id then return {'taken', id} end
local refusal = full()
if refusal then return refusal end
add_all()
admit_touched()
return answer
