-- Rows that pauses keep, as pauses.kept has it. Needs rows.lua, turns.lua and pauses.lua.

-- Some pause holds the row back, or has still to come to it.
local function kept(known, row)
  for _, pause in ipairs(known) do
    if covers(pause, row.who[TENANT], row.who[COLLECTION])
      and not passed(pause, score_of(row), member_of(row)) then
      return true
    end
  end
  return false
end

-- As adding.replaced: a row that begins a new run is at the end of its line, or held back like a new row.
local function place_anew(row)
  row[TURN] = 0
  local resumes = {}
  for _, pause in ipairs(pauses()) do
    if pause[3] ~= 'paused' then resumes[#resumes + 1] = pause end
  end
  if kept(resumes, row) then row[HELD] = PAUSED else row[TURN] = new_turn(row.who[TENANT], row[PRIORITY]) end
end
