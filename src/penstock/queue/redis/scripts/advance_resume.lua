-- advance_resume: number of rows. See rules/pause_batches.py. Returns {released, 1 if there is more}. See moves.lua.
local others, pause = {}, active_resume()
if not pause then return {0, 0} end
for _, other in ipairs(known) do
  if other ~= pause then others[#others + 1] = other end
end

-- Gathers rows parked for free locks. Returns whether there may be more.
local function gather_parked()
  local left = limit
  for _, lock in ipairs(call('ZRANGE', P .. 'lockers', 0, -1)) do
    local member = call('HEXISTS', P .. 'locks', lock) == 0 and call('ZRANGE', P .. 'parked:' .. lock, 0, 0)[1]
    while member do
      if left == 0 then return true end
      left = left - 1
      local row = load(id_in(member))
      if covers(pause, row.who[TENANT], row.who[COLLECTION]) then
        hold_back(row, PAUSED)
        member = call('ZRANGE', P .. 'parked:' .. lock, 0, 0)[1]
      else
        wake(lock)
        member = nil
      end
    end
  end
  return false
end

local function gather()
  local members, score, last = batch_of(P .. 'ready', pause)
  for _, member in ipairs(members) do
    local row = load(id_in(member))
    -- The row may have been held back since, when a lock was passed on.
    if row[STATUS] == PENDING and row[HELD] == FREE and covers(pause, row.who[TENANT], row.who[COLLECTION]) then
      hold_back(row, PAUSED)
    end
  end
  if #members == limit then set_pause(pause, PHASE_GATHERING, score, last)
  elseif gather_parked() then set_pause(pause, PHASE_GATHERING)
  else set_pause(pause, PHASE_RELEASING) end
  return {0, 1}
end

local function release()
  local members, score, last = batch_of(P .. 'paused', pause)
  local released = 0
  for _, member in ipairs(members) do
    local row = load(id_in(member))
    if not is_kept(others, row) then
      release_row(row)
      released = released + 1
    end
  end
  if released > 0 then notify() end
  if #members == limit then
    set_pause(pause, PHASE_RELEASING, score, last)
    return {released, 1}
  end
  call('HDEL', P .. 'pauses', field_of(pause))
  local more = 0
  for _, other in ipairs(others) do
    if other[3] ~= PHASE_PAUSED then more = 1 end
  end
  return {released, more}
end

return pause[3] == PHASE_GATHERING and gather() or release()
