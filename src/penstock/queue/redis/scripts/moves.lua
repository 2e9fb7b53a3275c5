-- Moving rows of a resume, as pausing.py has it. Needs resumes.lua, ranks.lua and holding.lua; what is asked begins with
-- how many rows. Keys: pauses, paused, ready, locks, parked:LOCK, flow:PRIORITY:TENANT, counts.
local asked = cmsgpack.unpack(ARGV[2])
local limit, known = asked[1], pauses()

local function field_of(pause)
  return pause[1] .. '\n' .. pause[2]
end

local function set_pause(pause, phase, score, member)
  call('HSET', P .. 'pauses', field_of(pause), cmsgpack.pack({phase, score or '', member or ''}))
end

-- Members of a zset in claim order after the place that a pause has come to, and score and member of the last.
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

local function let_go(row)
  local was = copy(row)
  row[UPDATED] = now
  free(row)
  save(row, was)
end

local function under_way()
  local first
  for _, pause in ipairs(known) do
    if pause[3] ~= 'paused' and (not first or precedes(pause[1], first[1])
      or pause[1] == first[1] and precedes(pause[2], first[2])) then
      first = pause
    end
  end
  return first
end
