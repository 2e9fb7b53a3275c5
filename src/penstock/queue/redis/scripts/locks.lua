-- Passing locks on; the rules are in rules/rows.py, wake. Needs rows.lua. Keys: locks, lockers, parked:LOCK,
-- front:LOCK and those of a row.

-- Locks whose next row now waits for its limit instead of taking the lock.
local limited_locks = {}

-- Makes the first row parked for this lock claimable, unless the lock is held; ``moment``: the time, if not now.
local function wake(lock, moment)
  if call('HEXISTS', P .. 'locks', lock) == 1 then return false end
  local parked = call('ZRANGE', P .. 'parked:' .. lock, 0, 0, 'WITHSCORES')
  if not parked[1] then return false end
  -- Not if a claimable row with a turn below 0 comes first: that row takes the lock next.
  local front = call('ZRANGE', P .. 'front:' .. lock, 0, 0, 'WITHSCORES')
  if front[1] then
    local own, other = tonumber(parked[2]), tonumber(front[2])
    if other < own or (other == own and precedes(front[1], parked[1])) then return false end
  end
  local row = load(id_in(parked[1]))
  local was = copy(row)
  row[HELD], row[UPDATED], row[TURN] = FREE, moment or now, row[TURN] == SUSPECT and SUSPECT or RETURNED
  save(row, was)
  if row[HELD] == LIMITED then limited_locks[lock] = true end
  return true
end

-- Wakes the rows behind those that wait for a slot; see rules/limits.py.
local function pass_over_limited()
  local rounds = 0
  while rounds < PASSED_AT_ONCE and next(limited_locks) do
    local locks = limited_locks
    limited_locks, rounds = {}, rounds + 1
    for lock in pairs(locks) do wake(lock) end
  end
end
