-- cancel: ids. Answers {statuses before and after, 0 for none, parents whose children are to be stopped}.
insist()
local answers = {}
for _, id in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = load(id)
  answers[#answers + 1] = row and row[STATUS] or 0
  if row and not ended(row) then cancel_one(row) end
  answers[#answers + 1] = row and row[STATUS] or 0
end
apply_aftermath()
ring()
return {answers, to_stop}
