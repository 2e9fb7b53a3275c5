-- stranded: number of rows, score and member of the last row seen ('' at the start). See release_stranded in
-- rules/pause_batches.py. Returns {released, score and member of the last row seen, '' at the end}. See moves.lua.
local batch, score, last = batch_of(P .. 'paused', {'', '', '', request[2], request[3]})
local stranded = 0
for _, member in ipairs(batch) do
  local row = load(id_in(member))
  if not is_kept(known, row) then
    release_row(row)
    stranded = stranded + 1
  end
end
admit_touched()
if stranded > 0 then notify() end
if #batch < limit then score, last = '', '' end
return {stranded, score, last}
