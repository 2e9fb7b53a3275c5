-- renew: heartbeats of id, claim number, lease (-1 = unchanged), progress or false. Returns for each -1 if the claim is
-- lost, else whether the job should stop. Keys: job:ID, lease.
allow_without_memory()
local answers = {}
for i, beat in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = load(beat[1])
  if not row or row[CLAIM] ~= beat[2] or row[LEASE] == 0 then
    answers[i] = -1
  else
    answers[i] = row[CANCEL]
    local was = copy(row)
    if beat[3] >= 0 then row[LEASE] = now + beat[3] end
    if beat[4] then
      row[UPDATED] = now
      set(row, 'prog', beat[4])
    end
    if beat[3] >= 0 or beat[4] then save(row, was) end
  end
end
return answers
