-- Rows that pauses keep, as pauses.kept has it. Needs rows.lua and pauses.lua.

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
