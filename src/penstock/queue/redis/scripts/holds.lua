-- Holding rows back, and promoting due rows. Needs aftermath.lua and pauses.lua.

-- Makes due rows claimable, as many as one claim may move.
local function promote(limit)
  local due = call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, limit)
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

local function hold_by_id(id, reason)
  local row = load(id)
  hold_back(row, reason)
  -- The row may have been woken for this lock.
  if reason == PAUSED and row.who[LOCK] ~= '' and row[LOCKED] == 0 then wake(row.who[LOCK]) end
end
