-- step: how many rows. As pausing.step. Answers {released, 1 when there is more to do}. See moves.lua.
local others, pause = {}, under_way()
if not pause then return {0, 0} end
for _, other in ipairs(known) do
  if other ~= pause then others[#others + 1] = other end
end

-- As pausing._gather_parked: rows parked for locks that nobody holds. Whether there may be more.
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
    -- It may have been held back since, when a lock was passed on.
    if row[STATUS] == PENDING and row[HELD] == FREE and covers(pause, row.who[TENANT], row.who[COLLECTION]) then
      hold_back(row, PAUSED)
    end
  end
  if #members == limit then set_pause(pause, 'gathering', score, last)
  elseif gather_parked() then set_pause(pause, 'gathering')
  else set_pause(pause, 'releasing') end
  return {0, 1}
end

local function release()
  local members, score, last = batch_of(P .. 'paused', pause)
  local released = 0
  for _, member in ipairs(members) do
    local row = load(id_in(member))
    if not kept(others, row) then
      let_go(row)
      released = released + 1
    end
  end
  if released > 0 then ring() end
  if #members == limit then
    set_pause(pause, 'releasing', score, last)
    return {released, 1}
  end
  call('HDEL', P .. 'pauses', field_of(pause))
  local more = 0
  for _, other in ipairs(others) do
    if other[3] ~= 'paused' then more = 1 end
  end
  return {released, more}
end

return pause[3] == 'gathering' and gather() or release()
