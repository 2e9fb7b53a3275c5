-- cancel: ids. Returns {statuses before and after, 0 for no job; parents with children to cancel; places to
-- resolve}.
allow_without_memory()
local answers = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = load(id)
  answers[#answers + 1] = row and row[STATUS] or 0
  if row and not ended(row) then cancel_one(row) end
  answers[#answers + 1] = row and row[STATUS] or 0
end
apply_aftermath()
admit_touched()
notify()
return {answers, to_stop, to_resolve}
