-- resume: number of rows, scope. See rules/pause_batches.py. Returns {0, 1 if there are rows to move}. See moves.lua.
local field, pause = request[2], nil
for _, each in ipairs(known) do
  if field_of(each) == field then pause = each end
end
if not pause then return {0, 0} end
if pause[3] ~= PHASE_PAUSED then return {0, 1} end
local members = batch_of(P .. 'paused')
local holds = field ~= '*\n*' and #members == limit
for _, member in ipairs(members) do
  local row = load(id_in(member))
  holds = holds or covers(pause, row.who[TENANT], row.who[COLLECTION])
end
if holds then
  set_pause(pause, PHASE_GATHERING)
  return {0, 1}
end
call('HDEL', P .. 'pauses', field)
notify()
return {0, 0}
