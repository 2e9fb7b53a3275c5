-- One batch of resume: score and member looked at last ('' at the start), how many. Releases rows no pause covers, in
-- claim order, with new turns. Answers {released, score, member of the last looked at, '' at the end}.
-- Keys: paused, pauses, ready, flow:PRIORITY:TENANT, counts.
local asked = cmsgpack.unpack(ARGV[2])
local from = 0
if asked[2] ~= '' then
  from = rank_of(P .. 'paused', asked[1], asked[2])
  if call('ZSCORE', P .. 'paused', asked[2]) == asked[1] then from = from + 1 end
end
local batch = call('ZRANGE', P .. 'paused', from, from + asked[3] - 1)
local scopes, released = pauses(), 0
local last = {'', ''}
if #batch == asked[3] then last = {call('ZSCORE', P .. 'paused', batch[#batch]), batch[#batch]} end
for _, member in ipairs(batch) do
  local row = load(id_in(member))
  if not covered(scopes, row.who[TENANT], row.who[COLLECTION]) then
    local was = copy(row)
    row[HELD], row[UPDATED] = FREE, now
    if row[TURN] >= 0 then row[TURN] = new_turn(row.who[TENANT], row[PRIORITY]) end
    save(row, was)
    released = released + 1
  end
end
if released > 0 then ring() end
return {released, last[1], last[2]}
