-- Ending claims, as settling.py has it. Needs aftermath.lua and adding.lua. Keys: all of a row and its relatives.

-- The job, if the claim still counts.
local function held(settlement)
  local row = load(settlement[S_ID])
  if not row or row[STATUS] ~= RUNNING or row[CLAIM] ~= settlement[S_CLAIM] then return nil end
  if row[LEASE] == 0 and settlement[S_KEEP] then return nil end
  return row
end

-- The id of a child that is taken, looked for before anything is written.
local function taken_child(settlements)
  local ids, names = {}, {}
  for _, settlement in ipairs(settlements) do
    local children = settlement[S_CHILDREN]
    local parent = children and #children > 0 and held(settlement)
    for _, new in ipairs(parent and children or {}) do
      local key = ({struct.unpack(WHO, new[NEW_WHO])})[KEY]
      local name = parent.id .. '\0' .. key
      if not names[name] and call('HEXISTS', P .. 'names:' .. parent[RUN] .. ':' .. parent.id, key) == 0 then
        if ids[new[NEW_ID]] or call('EXISTS', P .. 'job:' .. new[NEW_ID]) == 1 then return new[NEW_ID] end
        ids[new[NEW_ID]], names[name] = true, true
      end
    end
  end
end

-- End one plain claim as done; the indexes follow with flush. No follow-up, no parent, no children.
local function finish_plain(id, claim, result)
  local key = P .. 'job:' .. id
  local raw = call('HMGET', key, 'row', 'kin', 'next', 'id', 'err', 'res')
  if not raw[1] or raw[2] or raw[3] then return false end
  local row = {struct.unpack(STATE, raw[1])}
  if row[STATUS] ~= RUNNING or row[CLAIM] ~= claim or row[OPEN] > 0 or row[LEASE] == 0 then return false end
  local who = {struct.unpack(WHO, raw[4])}
  later_count(P .. 'counts', RUNNING .. ':0:' .. who[TYPE], -1)
  later_count(P .. 'counts', DONE .. ':0:' .. who[TYPE], 1)
  if row[LOCKED] == 1 then call('HDEL', P .. 'locks', who[LOCK]) end
  if who[DEDUPE] == 1 then call('HDEL', P .. 'keys', key_of(who)) end
  row[STATUS], row[LEASE], row[LOCKED], row[CODE], row[FINISHED], row[UPDATED] = DONE, 0, 0, '', now, now
  if result then call('HSET', key, 'row', packed(row), 'res', result) else call('HSET', key, 'row', packed(row)) end
  if raw[5] then call('HDEL', key, 'err') end
  if raw[6] and not result then call('HDEL', key, 'res') end
  later_remove(P .. 'lease', id)
  later_remove(P .. 'live', id)
  later_add(P .. 'done', 0, id)
  later_add(P .. 'ended:done', number(now), id)
  return true
end

local function settle_one(settlement)
  local row = held(settlement)
  if not row then return 0 end
  local was = copy(row)
  local children = settlement[S_CHILDREN]
  if children and #children > 0 then row[OPEN] = row[OPEN] + add_children(row, children) end
  settled(row, settlement)
  save(row, was)
  note(row, was)
  return row[STATUS]
end

local function distinct(settlements)
  local seen = {}
  for _, settlement in ipairs(settlements) do
    if seen[settlement[S_ID]] then return false end
    seen[settlement[S_ID]] = true
  end
  return true
end

-- New statuses, 0 where the claim was lost. A plain settlement is short: id, claim number, result or false.
local function settle(settlements)
  local answers = {}
  -- While rows are parked every ending must be asked for its lock, and two settlements of one job must meet in
  -- the order given: only the general path does that.
  if #settlements > 0 and call('EXISTS', P .. 'lockers') == 0 and distinct(settlements) then
    for i, settlement in ipairs(settlements) do
      if #settlement == 3 and finish_plain(settlement[1], settlement[2], settlement[3]) then answers[i] = DONE end
    end
    flush()
  end
  for i, settlement in ipairs(settlements) do
    if not answers[i] then
      if #settlement == 3 then
        local result = settlement[3]
        settlement = {settlement[1], settlement[2], DONE, 'done', 0, 0, 0, false, false, false, false, false, result,
          false, {}}
      end
      answers[i] = settle_one(settlement)
    end
  end
  apply_aftermath()
  return answers
end
