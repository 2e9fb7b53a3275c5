-- Holding rows back, and letting those go whose time has come. Needs aftermath.lua and pauses.lua.

-- Rows whose time has come, as many as one claim may move.
local function promote(most)
  local due = call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, most)
  for _, id in ipairs(due) do
    local row = load(id)
    local was = copy(row)
    row[HELD], row[RUN_AT], row[UPDATED] = FREE, 0, now
    save(row, was)
  end
end

local function hold_back(row, reason)
  local was = copy(row)
  local woken = row[TURN] == RETURNED and row.who[LOCK] ~= '' and row[LOCKED] == 0
  row[HELD], row[UPDATED] = reason, now
  if reason == PAUSED and (woken or row[TURN] > 0) then row[TURN] = 0 end
  save(row, was)
end

local function hold(id, reason)
  local row = load(id)
  hold_back(row, reason)
  -- It may have been the one woken to take the lock next.
  if reason == PAUSED and row.who[LOCK] ~= '' and row[LOCKED] == 0 then wake(row.who[LOCK]) end
end
