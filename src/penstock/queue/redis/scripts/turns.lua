-- Turn numbers, by the rule of transitions.next_turn: after the tenant's own last waiting row, never before the
-- head of the priority. Needs rows.lua. Reads ready and flow:PRIORITY:TENANT.

local heads, lasts = {}, {}

local function head_turn(priority)
  local first = (10 - priority) * STRIDE
  local found = call('ZRANGEBYSCORE', P .. 'ready', number(first + 2), number(first + STRIDE - 1), 'WITHSCORES',
    'LIMIT', 0, 1)
  return found[2] and tonumber(found[2]) - first - 2
end

local function last_turn(tenant, priority)
  local found = call('ZREVRANGE', P .. 'flow:' .. priority .. ':' .. tenant, 0, 0, 'WITHSCORES')
  return found[2] and tonumber(found[2])
end

-- For a single row: reads the current turns, remembers nothing.
local function new_turn(tenant, priority)
  return math.max(head_turn(priority) or 0, (last_turn(tenant, priority) or -1) + 1)
end

-- For a batch of new rows: reads each flow once, then counts until forget_turns.
local function next_turn(tenant, priority)
  local flow = priority .. ':' .. tenant
  if heads[priority] == nil then heads[priority] = head_turn(priority) or false end
  if lasts[flow] == nil then lasts[flow] = last_turn(tenant, priority) or -1 end
  return math.max(heads[priority] or 0, lasts[flow] + 1)
end

local function record_turn(tenant, priority, turn)
  local flow = priority .. ':' .. tenant
  if turn >= 0 then
    if not heads[priority] or heads[priority] > turn then heads[priority] = turn end
    if lasts[flow] < turn then lasts[flow] = turn end
  end
end

-- Makes a held row claimable again, after the other rows of its tenant.
local function make_claimable(row)
  row[HELD] = FREE
  if row[TURN] >= 0 then row[TURN] = new_turn(row.who[TENANT], row[PRIORITY]) end
end

-- Counts a new row with turn 0 that is held.
local function record_held_row(tenant, priority)
  local flow = priority .. ':' .. tenant
  next_turn(tenant, priority)
  if lasts[flow] < 0 then lasts[flow] = 0 end
end

local function forget_turns()
  heads, lasts = {}, {}
end
