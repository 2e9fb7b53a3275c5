-- Rows kept by pauses; the rules are in rules/pauses.py. Needs rows.lua, turns.lua and pauses.lua.

-- Whether a pause holds the row back, or its resume has not reached the row.
local function is_kept(known, row)
  for _, pause in ipairs(known) do
    if covers(pause, row.who[TENANT], row.who[COLLECTION])
      and not has_passed(pause, score_of(row), member_of(row)) then
      return true
    end
  end
  return false
end

-- Puts a row that begins a new run at the end of its tenant's rows, or holds it back like a new row.
local function assign_position(row)
  row[TURN] = 0
  local resumes = {}
  for _, pause in ipairs(pauses()) do
    if pause[3] ~= PHASE_PAUSED then resumes[#resumes + 1] = pause end
  end
  if is_kept(resumes, row) then row[HELD] = PAUSED else row[TURN] = new_turn(row.who[TENANT], row[PRIORITY]) end
end
