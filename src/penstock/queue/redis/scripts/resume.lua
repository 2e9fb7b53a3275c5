-- resume: how many rows, the scope. As pausing.resume. Answers {0, 1 when there are rows to be moved}. See moves.lua.
local field, pause = asked[2], nil
for _, each in ipairs(known) do
  if field_of(each) == field then pause = each end
end
if not pause then return {0, 0} end
if pause[3] ~= 'paused' then return {0, 1} end
local members = batch_of(P .. 'paused')
local holds = field ~= '*\n*' and #members == limit
for _, member in ipairs(members) do
  local row = load(id_in(member))
  holds = holds or covers(pause, row.who[TENANT], row.who[COLLECTION])
end
if holds then
  set_pause(pause, 'gathering')
  return {0, 1}
end
call('HDEL', P .. 'pauses', field)
ring()
return {0, 0}
