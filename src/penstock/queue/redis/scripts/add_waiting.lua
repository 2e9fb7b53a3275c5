-- add_waiting: as add, for calls with jobs that wait for others. A new job has one more value: false, or the ids to
-- wait for and whether it runs after a failure. Also returns {'unknown', id, dependency} and {'other', id, live id}.
-- See checked in rules/dependencies.py. Needs additions.lua and dependencies.lua.
local taken_one = taken_id()
if taken_one then return {'taken', taken_one} end

local final, firsts, all = {}, {}, {}
for i, new in ipairs(jobs) do
  local who = whos[i]
  final[new[NEW_ID]] = who[DEDUPE] == 1 and live(who) or new[NEW_ID]
end

local function contains_all(list, ids)
  local set_of = {}
  for _, id in ipairs(list) do set_of[id] = true end
  for _, id in ipairs(ids) do
    if not set_of[id] then return false end
  end
  return true
end

for i, new in ipairs(jobs) do
  local given, ids, seen, own = new[NEW_AFTER], {}, {}, final[new[NEW_ID]]
  for _, id in ipairs(given and given[1] or {}) do
    local meant = final[id] or id
    if not final[id] and not load(id) then return {'unknown', new[NEW_ID], id} end
    if not seen[meant] then ids[#ids + 1] = meant end
    seen[meant] = true
  end
  if given and own ~= new[NEW_ID] and not contains_all(dependencies_of(load(own)), ids) then
    return {'other', new[NEW_ID], own}
  end
  local key = whos[i][DEDUPE] == 1 and key_of(whos[i])
  if given and key and firsts[key] and not contains_all(firsts[key][2], ids) then
    return {'other', new[NEW_ID], firsts[key][1]}
  end
  if key then firsts[key] = firsts[key] or {new[NEW_ID], ids} end
  if given then
    local waits, failed = verdict(ids, given[2], final)
    new.after, new.waits = encoded(ids, given[2]), waits or failed
    for _, id in ipairs(ids) do all[id] = true end
  end
end
local refusal = full()
if refusal then return refusal end

add_all()
local ids, over = {}, {}
for id in pairs(all) do ids[#ids + 1] = id end
table.sort(ids, precedes)
await_rows(ids)
for _, id in ipairs(ids) do
  local row = load(id)
  if row and ended(row) then over[#over + 1] = id end
end
resolve(over, RESOLVED_AT_ONCE)
admit_touched()
for i = 2, #answer, 4 do
  if answer[i + 3] == 0 then answer[i + 1] = load(answer[i])[STATUS] end
end
return answer
