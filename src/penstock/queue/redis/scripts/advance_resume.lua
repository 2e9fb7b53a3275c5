-- advance_resume: number of rows. See rules/pause_batches.py. Returns {released, 1 if there is more}. See moves.lua.
local others, pause = {}, active_resume()
if not pause then return {0, 0} end
for _, other in ipairs(known) do
  if other ~= pause then others[#others + 1] = other end
end

-- See pause_batches._hold_back.
local function hold_all(rows)
  local keys, woken = {}, false
  for _, row in ipairs(rows) do
    hold_back(row, PAUSED)
    -- It may have been the one woken to take its lock next.
    if row.who[LOCK] ~= '' and row[LOCKED] == 0 then keys[row.who[LOCK]] = true end
  end
  for lock in pairs(keys) do woken = wake(lock) or woken end
  if woken then notify() end
end

-- Rows of the scope that are parked, by lock and then in claim order, as many as one step may move.
local function parked_rows()
  local found = {}
  for _, lock in ipairs(call('ZRANGE', P .. 'lockers', 0, -1)) do
    local from, members = 0, nil
    repeat
      members = call('ZRANGE', P .. 'parked:' .. lock, from, from + limit - 1)
      for _, member in ipairs(members) do
        local who = {struct.unpack(WHO, call('HGET', P .. 'job:' .. id_in(member), 'id'))}
        if covers(pause, who[TENANT], who[COLLECTION]) then found[#found + 1] = load(id_in(member)) end
        if #found == limit then return found end
      end
      from = from + limit
    until #members < limit
  end
  return found
end

-- See pause_batches._gather. A script sees all rows as they are, so no row is read twice.
local function gather()
  if pause[5] == '' then
    local parked = parked_rows()
    hold_all(parked)
    limit = limit - #parked
  end
  if limit == 0 then return {0, 1} end
  local members, score, last = batch_of(P .. 'ready', pause)
  local covered = {}
  for _, member in ipairs(members) do
    local row = load(id_in(member))
    if covers(pause, row.who[TENANT], row.who[COLLECTION]) then covered[#covered + 1] = row end
  end
  hold_all(covered)
  if #members == limit then set_pause(pause, PHASE_GATHERING, score, last) else set_pause(pause, PHASE_RELEASING) end
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

local moved = pause[3] == PHASE_GATHERING and gather() or release()
admit_touched()
return moved
