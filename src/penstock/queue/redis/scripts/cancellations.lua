-- Cancelling one row; the rules are in rules/cancellation.py. Needs aftermath.lua. Keys: all of a row and its relatives.

local function cancel_one(row)
  local was = copy(row)
  cancelled(row)
  save(row, was)
  collect(row, was)
  -- The row may have been woken for this lock.
  if was[STATUS] == PENDING and was[LOCKED] == 0 and row.who[LOCK] ~= '' then freed[row.who[LOCK]] = true end
end
