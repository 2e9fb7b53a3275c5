-- As cancelling.py has it. Needs aftermath.lua. Keys: all of a row and its relatives.

local function cancel_one(row)
  local was = copy(row)
  cancelled(row)
  save(row, was)
  note(row, was)
  -- It may have been the one woken to take the lock next.
  if was[STATUS] == PENDING and was[LOCKED] == 0 and row.who[LOCK] ~= '' then freed[row.who[LOCK]] = true end
end
