-- Passing locks on, as locks.py has it. Needs rows.lua. Keys: locks, lockers, parked:LOCK and those of a row.

-- Let the first row parked for this lock be claimed, unless somebody holds it.
local function wake(lock)
  if call('HEXISTS', P .. 'locks', lock) == 1 then return false end
  local first = call('ZRANGE', P .. 'parked:' .. lock, 0, 0)[1]
  if not first then return false end
  local row = load(id_in(first))
  local was = copy(row)
  row[HELD], row[UPDATED], row[TURN] = FREE, now, row[TURN] == SUSPECT and SUSPECT or RETURNED
  save(row, was)
  return true
end
