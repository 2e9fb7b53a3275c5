-- stranded: how many rows, score and member looked at last ('' at the start). As pausing.release_stranded. Answers
-- {released, score and member looked at last, '' at the end}. See moves.lua.
local batch, score, last = batch_of(P .. 'paused', {'', '', '', asked[2], asked[3]})
local stranded = 0
for _, member in ipairs(batch) do
  local row = load(id_in(member))
  if not kept(known, row) then
    let_go(row)
    stranded = stranded + 1
  end
end
if stranded > 0 then ring() end
if #batch < limit then score, last = '', '' end
return {stranded, score, last}
