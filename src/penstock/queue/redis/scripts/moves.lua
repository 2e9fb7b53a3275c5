-- Moving the rows of a resume; the rules are in rules/pause_batches.py. Needs resumes.lua, ranks.lua and holds.lua.
-- Arguments begin with the number of rows. Keys: pauses, paused, ready, locks, parked:LOCK, flow:PRIORITY:TENANT, counts.
local request = cmsgpack.unpack(ARGV[2])
local limit, known = request[1], pauses()

local function field_of(pause)
  return pause[1] .. '\n' .. pause[2]
end

local function set_pause(pause, phase, score, member)
  call('HSET', P .. 'pauses', field_of(pause), cmsgpack.pack({phase, score or '', member or ''}))
end

-- The next members of a zset after the position of a pause, and score and member of the last.
local function batch_of(key, pause)
  local from = 0
  if pause and pause[5] ~= '' then
    from = rank_of(key, pause[4], pause[5])
    local there = call('ZSCORE', key, pause[5])
    if there and tonumber(there) == tonumber(pause[4]) then from = from + 1 end
  end
  local found, members = call('ZRANGE', key, from, from + limit - 1, 'WITHSCORES'), {}
  for i = 1, #found, 2 do members[#members + 1] = found[i] end
  return members, found[#found] and number(tonumber(found[#found])), members[#members]
end

local function release_row(row)
  local was = copy(row)
  row[UPDATED] = now
  make_claimable(row)
  save(row, was)
end

local function active_resume()
  local first
  for _, pause in ipairs(known) do
    if pause[3] ~= PHASE_PAUSED and (not first or precedes(pause[1], first[1])
      or pause[1] == first[1] and precedes(pause[2], first[2])) then
      first = pause
    end
  end
  return first
end
