-- Settling claims; the rules are in rules/settlement.py. Needs aftermath.lua and new_rows.lua. Keys: all of a row and its relatives.

-- The row, if the claim is still valid.
local function held(settlement)
  local row = load(settlement[S_ID])
  if not row or row[STATUS] ~= RUNNING or row[CLAIM] ~= settlement[S_CLAIM] then return nil end
  if row[LEASE] == 0 and settlement[S_KEEP] then return nil end
  return row
end

-- Returns the id of a new child that exists already. Called before the first write.
local function taken_child(settlements)
  local ids, names = {}, {}
  for i = 1, #settlements[1] do
    local settlement = settlements[4][i]
    local children = settlement and settlement[S_CHILDREN]
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

local function settle_one(settlement)
  local row = held(settlement)
  if not row then return 0 end
  local was = copy(row)
  local children = settlement[S_CHILDREN]
  if children and #children > 0 then row[OPEN] = row[OPEN] + add_children(row, children) end
  settled(row, settlement)
  save(row, was)
  collect(row, was)
  return row[STATUS]
end

-- Applies the settlements without an answer, then the effects of all.
local function settle_rest(settlements, answers)
  for i, id in ipairs(settlements[1]) do
    if not answers[i] then
      answers[i] = settle_one(settlements[4][i] or {id, settlements[2][i], DONE, 'done', 0, 0, 0, false, false, false,
        false, false, settlements[3][i], false, {}})
    end
  end
  apply_aftermath()
  admit_touched()
  return table.concat(answers), to_stop[1] and to_stop or false, to_resolve[1] and to_resolve or false
end
