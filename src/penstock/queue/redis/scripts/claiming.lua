-- One claim, as choosing.py and memory.py have it. Needs aftermath.lua (for wake). Keys: ready, later, pauses, locks,
-- lease, flow:PRIORITY:TENANT, counts, backlog, and where rows are held back paused and parked:LOCK.

local ROUNDS, HELD_BACK_AT_ONCE, DUE_AT_ONCE = 4, 1000, 2000

-- Rows whose time has come; false when more are due than one script should move.
local function promote()
  local due = call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, DUE_AT_ONCE)
  for _, id in ipairs(due) do
    local row = load(id)
    local was = copy(row)
    row[HELD], row[RUN_AT], row[UPDATED] = FREE, 0, now
    save(row, was)
  end
  return #due < DUE_AT_ONCE
end

local function pauses()
  local scopes = call('SMEMBERS', P .. 'pauses')
  for i, scope in ipairs(scopes) do
    local tenant, collection = string.match(scope, '^(.-)\n(.*)$')
    scopes[i] = {tenant, collection}
  end
  return scopes
end

local function covered(scopes, who)
  for _, scope in ipairs(scopes) do
    if (scope[1] == '*' or scope[1] == who[TENANT]) and (scope[2] == '*' or scope[2] == who[COLLECTION]) then
      return true
    end
  end
  return false
end

local function candidates(size, oldest)
  local found = call('ZRANGE', P .. 'ready', 0, size - 1)
  if not oldest or #found == 0 then return found end
  local first
  for priority = 10, 0, -1 do
    local low = (10 - priority) * STRIDE
    local head = call('ZRANGEBYSCORE', P .. 'ready', number(low), number(low + STRIDE - 1), 'LIMIT', 0, 1)[1]
    if head and (not first or precedes(head, first)) then first = head end
  end
  local ordered = {first}
  for _, member in ipairs(found) do
    if member ~= first and #ordered < size then ordered[#ordered + 1] = member end
  end
  return ordered
end

local function candidate(member)
  local id = id_in(member)
  local key = P .. 'job:' .. id
  local raw = call('HMGET', key, 'row', 'id', 'kin', 'body', 'meta', 'prog')
  local row = {struct.unpack(STATE, raw[1])}
  row.id, row.key, row.member, row.raw, row.who = id, key, member, raw, {struct.unpack(WHO, raw[2])}
  return row
end

local function take(row, request)
  local who = row.who
  local tenant, kind = who[TENANT], who[TYPE]
  if who[LOCK] ~= '' and row[LOCKED] == 0 then
    call('HSET', P .. 'locks', who[LOCK], row.id)
    row[LOCKED] = 1
  end
  later_remove(P .. 'ready', row.member)
  if row[TURN] >= 0 then later_remove(P .. 'flow:' .. row[PRIORITY] .. ':' .. tenant, row.id) end
  row[STATUS], row[WORKER], row[CLAIM], row[STARTED], row[UPDATED] = RUNNING, request[1], row[CLAIM] + 1, now, now
  row[LEASE] = now + (request[5][kind] or request[3])
  local state = packed(row)
  call('HSET', row.key, 'row', state)
  later_add(P .. 'lease', number(row[LEASE]), row.id)
  later_count(P .. 'counts', PENDING .. ':0:' .. kind, -1)
  later_count(P .. 'counts', RUNNING .. ':0:' .. kind, 1)
  if not row.raw[3] then
    local class = kind == 'function' and 'f' or 'i'
    later_count(P .. 'backlog', class, -1)
    later_count(P .. 'backlog', class .. ':' .. tenant, -1)
  end
  row.raw[1] = state
  known[row.id] = nil
end

local function hold(row, reason)
  row = load(row.id)
  local was = copy(row)
  row[HELD], row[UPDATED] = reason, now
  if reason == PAUSED and row[TURN] > 0 then row[TURN] = 0 end
  save(row, was)
  -- It may have been the one woken to take the lock next.
  if reason == PAUSED and row.who[LOCK] ~= '' and row[LOCKED] == 0 then wake(row.who[LOCK]) end
end

-- choosing.choose: what is taken, what is held back and why, and whether the claim is closed.
local function choose(found, room, first, scopes)
  local taken, kept, mine = {}, {}, {}
  for _, member in ipairs(found) do
    if #taken == room then return taken, kept, true end
    local row = candidate(member)
    local lock = row.who[LOCK]
    if #scopes > 0 and covered(scopes, row.who) then
      kept[#kept + 1] = {row, PAUSED}
    elseif lock ~= '' and row[LOCKED] == 0 and (mine[lock] or call('HEXISTS', P .. 'locks', lock) == 1) then
      kept[#kept + 1] = {row, PARKED}
    elseif row[TURN] == SUSPECT then
      -- It may take its process down, so nothing else may be in the same hands.
      if first and #taken == 0 then taken = {row} end
      return taken, kept, true
    else
      taken[#taken + 1] = row
      if lock ~= '' then mine[lock] = true end
    end
  end
  return taken, kept, #taken == room
end

-- A claim is {worker_id, limit, lease, oldest, lease by item_type}. Answers {1, rows read, id, id, row, kin, body,
-- meta, prog, ...}, with 0 instead of 1: nothing taken yet, but there is more to look at.
local function claim(request)
  local answer, read, taken = {1, 0}, 0, 0
  if not promote() then return {0, 0} end
  local scopes, size, limit = pauses(), request[2], request[2]
  for round = 1, ROUNDS do
    local found = candidates(size, request[4] and round == 1)
    read = read + #found
    local chosen, kept, closed = choose(found, limit - taken, taken == 0, scopes)
    for _, row in ipairs(chosen) do
      take(row, request)
      local n, raw = #answer, row.raw
      answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = row.id, raw[2], raw[1], raw[3]
      answer[n + 5], answer[n + 6], answer[n + 7] = raw[4], raw[5], raw[6]
    end
    flush()
    taken = taken + #chosen
    for _, entry in ipairs(kept) do hold(entry[1], entry[2]) end
    if closed or #kept == 0 then break end
    if round == ROUNDS and taken == 0 then answer[1] = 0 end
    size = math.max(limit, HELD_BACK_AT_ONCE)
  end
  answer[2] = read
  return answer
end
