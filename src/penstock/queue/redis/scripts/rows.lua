-- Rows and their indexes, as listed in keys.lua. Needs keys.lua.

local STATUSES = STATUS_NAMES
-- Done rows have no own index; they are found in all. One more entry for each job would cost more than it is worth.
local HOMES = {'live', 'live', false, 'failed', 'cancelled'}
local known = {}
-- Keys of limits for which rows gave up a slot, or began to wait.
local limit_keys = {}

local function load(id)
  local row = known[id]
  if row ~= nil then return row or nil end
  local key = P .. 'job:' .. id
  local raw = call('HMGET', key, 'id', 'row', 'kin', 'next', 'after', 'awaited', 'limit', 'go', 'bkey', 'ttl')
  if not raw[2] then
    known[id] = false
    return nil
  end
  row = {struct.unpack(STATE, raw[2])}
  row.id, row.key, row.who, row.next = id, key, {struct.unpack(WHO, raw[1])}, raw[4]
  row.after, row.awaited, row.limit, row.go = raw[5], raw[6], raw[7] or nil, raw[8] and tonumber(raw[8]) or nil
  row.bkey, row.ttl = raw[9] or nil, raw[10] and tonumber(raw[10]) or nil
  if raw[3] then row.kin = {struct.unpack(KIN, raw[3])} end
  known[id] = row
  return row
end

local function copy(row)
  local was = {unpack(row, 1, SIZE)}
  was.go = row.go
  return was
end

local function packed(row)
  return struct.pack(STATE, unpack(row, 1, SIZE))
end

-- Sets a long column, which save writes with the row; false removes it.
local function set(row, name, value)
  row.long = row.long or {}
  row.long[name] = value or false
  if value and name ~= 'body' then row[MORE] = 1 end
  if name == 'next' then row.next = value end
end

local function lock_of(row)
  local key = row.who[LOCK]
  return key ~= '' and key or nil
end

local function root_of(row)
  return row.kin and row.kin[ROOT] or row.id
end

local function ended(state)
  return state[STATUS] >= DONE
end

local function waiting(state)
  return state[STATUS] == RUNNING and state[LEASE] == 0
end

local function key_of(who)
  return who[TENANT] .. '\0' .. who[BRANCH] .. '\0' .. who[KEY]
end

-- Indexes.

local function score_of(state)
  return string.format('%.0f', (10 - state[PRIORITY]) * STRIDE + state[TURN] + 2)
end

local function member_of(row)
  return string.format('%014x', row[CREATED]) .. row.id
end

local function place_of(state, row)
  local status, held = state[STATUS], state[HELD]
  if status == PENDING then
    if held == TIMED then return 'later', number(state[RUN_AT]), row.id end
    if held == FREE then return 'ready', score_of(state), member_of(row) end
    if held == PAUSED then return 'paused', score_of(state), member_of(row) end
    if held == DEPENDENT then return nil end
    if held == LIMITED then return 'limited:' .. row.limit, score_of(state), member_of(row) end
    return 'parked:' .. row.who[LOCK], score_of(state), member_of(row)
  elseif status == RUNNING then
    if state[LEASE] > 0 then return 'lease', number(state[LEASE]), row.id end
    return 'waiting', '0', row.id
  elseif not row.kin then
    return 'ended:' .. STATUSES[status], number(state[FINISHED]), row.id
  end
end

-- State of a child: 0 can be cancelled, 1 cancel requested, 2 failed, 3 cancelled, 4 done.
local function child_state(state)
  local status = state[STATUS]
  if status == FAILED then return 2 end
  if status == CANCELLED then return 3 end
  if status == DONE then return 4 end
  return status == RUNNING and state[CANCEL] == 1 and 1 or 0
end

local function kids_of(row)
  return P .. 'kids:' .. row[RUN] .. ':' .. row.id
end

local function flow_of(state, row)
  if state[STATUS] == PENDING and state[TURN] >= 0 then
    return P .. 'flow:' .. state[PRIORITY] .. ':' .. row.who[TENANT]
  end
end

local function class_of(state, row)
  return state[STATUS] .. ':' .. state[HELD] .. ':' .. row.who[TYPE]
end

local function count_backlog(row, change)
  local class = row.who[TYPE] == FUNCTION and 'f' or 'i'
  call('HINCRBY', P .. 'backlog', class, change)
  if call('HINCRBY', P .. 'backlog', class .. ':' .. row.who[TENANT], change) == 0 then
    call('HDEL', P .. 'backlog', class .. ':' .. row.who[TENANT])
  end
  if row.bkey then add_counts(P .. 'backlog', {['k:' .. row.bkey] = change}) end
end

local function backs_off(state)
  return state[STATUS] == PENDING and state[HELD] == TIMED and (state[RETRIES] > 0 or state.go ~= nil)
end

-- Whether a row belongs to front:LOCK.
local function in_front(state, row)
  return state[STATUS] == PENDING and state[HELD] == FREE and state[TURN] < 0 and row.who[LOCK] ~= ''
end

local function move_front(row, was)
  local before, after = in_front(was, row), in_front(row, row)
  local front = P .. 'front:' .. row.who[LOCK]
  if before and not after then call('ZREM', front, member_of(row)) end
  if after then call('ZADD', front, score_of(row), member_of(row)) end
end

local function move_place(row, was)
  if backs_off(row) ~= backs_off(was) then
    if backs_off(row) then call('ZADD', P .. 'backoff', 0, row.id) else call('ZREM', P .. 'backoff', row.id) end
  end
  local from, before, old = place_of(was, row)
  local to, after, new = place_of(row, row)
  if from == to and before == after and old == new then return end
  if from and (from ~= to or old ~= new) then
    call('ZREM', P .. from, old)
    if was[STATUS] == PENDING and was[HELD] == PARKED and call('EXISTS', P .. from) == 0 then
      call('ZREM', P .. 'lockers', row.who[LOCK])
    end
    if was[STATUS] == PENDING and was[HELD] == LIMITED and call('EXISTS', P .. from) == 0 then
      call('ZREM', P .. 'limiters', row.limit)
    end
  end
  if to then
    call('ZADD', P .. to, after, new)
    if row[STATUS] == PENDING and row[HELD] == PARKED then call('ZADD', P .. 'lockers', 0, row.who[LOCK]) end
    if row[STATUS] == PENDING and row[HELD] == LIMITED then call('ZADD', P .. 'limiters', 0, row.limit) end
  end
end

local function depends(state)
  return state[STATUS] == PENDING and state[HELD] == DEPENDENT
end

-- Ids of the jobs that a row waits or waited for.
local function dependencies_of(row)
  return row.after and cjson.decode(row.after).after or {}
end

local function enter_dependencies(row)
  for _, id in ipairs(dependencies_of(row)) do
    call('ZADD', P .. 'waits:' .. id, 0, row.id)
    call('ZADD', P .. 'awaited', 0, id)
  end
end

local function leave_dependencies(row)
  for _, id in ipairs(dependencies_of(row)) do
    call('ZREM', P .. 'waits:' .. id, row.id)
    if call('EXISTS', P .. 'waits:' .. id) == 0 then call('ZREM', P .. 'awaited', id) end
  end
end

local function enter_result(row)
  call('ZADD', P .. 'results', number(row[FINISHED] + row.ttl * COUNT_CAP), row.id)
end

local function move_flow(row, was)
  local from, to = flow_of(was, row), flow_of(row, row)
  if from and from ~= to then call('ZREM', from, row.id) end
  if to and (from ~= to or was[TURN] ~= row[TURN]) then call('ZADD', to, number(row[TURN]), row.id) end
end

local function move_kin(row, was)
  local kind = child_state(row)
  if kind ~= child_state(was) then
    call('ZADD', P .. 'kids:' .. row.kin[PARENT_RUN] .. ':' .. row.kin[PARENT], kind, row.id)
  end
  if ended(row) ~= ended(was) then
    call('ZADD', P .. 'tree:' .. row.kin[ROOT], ended(row) and 1 or 0, row.id)
  end
end

local function move_counts(row, was)
  local before, after = class_of(was, row), class_of(row, row)
  if before ~= after then
    call('HINCRBY', P .. 'counts', before, -1)
    call('HINCRBY', P .. 'counts', after, 1)
  end
  local pending = row[STATUS] == PENDING
  if not row.kin and pending ~= (was[STATUS] == PENDING) then count_backlog(row, pending and 1 or -1) end
end

local function move_keys(row, was)
  local over = ended(row)
  local from, to = HOMES[was[STATUS]], HOMES[row[STATUS]]
  if from ~= to then
    if from then call('ZREM', P .. from, row.id) end
    if to then call('ZADD', P .. to, 0, row.id) end
  end
  if over ~= ended(was) and not row.kin and row.who[DEDUPE] == 1 then
    if over then call('HDEL', P .. 'keys', key_of(row.who))
    else call('HSET', P .. 'keys', key_of(row.who), row.id) end
  end
  if row[LOCKED] ~= was[LOCKED] and row.who[LOCK] ~= '' then
    if row[LOCKED] == 1 then call('HSET', P .. 'locks', row.who[LOCK], row.id)
    else call('HDEL', P .. 'locks', row.who[LOCK]) end
  end
end

-- limits.gated: a row with a limit is claimable only with a start that the limit has given it.
local function gate(row, was)
  local pending = row[STATUS] == PENDING
  if row.go then
    local waits = pending and was[STATUS] == PENDING and (row[HELD] == FREE or row[HELD] == TIMED)
    if not (waits or row[LEASE] > 0) then
      row.go = nil
      set(row, 'go', false)
    end
  end
  if pending and row[HELD] == FREE and not row.go then row[HELD], row[TURN] = LIMITED, math.min(row[TURN], 0) end
  if row.go ~= was.go then
    local admitted = P .. 'admitted:' .. row.limit
    if row.go then call('ZADD', admitted, number(row.go), row.id) else call('ZREM', admitted, row.id) end
  end
  if (was.go and not row.go) or (row[HELD] == LIMITED and was[HELD] ~= LIMITED) then limit_keys[row.limit] = true end
end

-- Writes a row that was changed in place; ``was`` is a copy from before.
local function save(row, was)
  if row.limit then gate(row, was) end
  call('HSET', row.key, 'row', packed(row))
  for name, value in pairs(row.long or {}) do
    if value then call('HSET', row.key, name, value) else call('HDEL', row.key, name) end
  end
  row.long = nil
  move_place(row, was)
  move_front(row, was)
  move_flow(row, was)
  move_counts(row, was)
  move_keys(row, was)
  if row.kin then move_kin(row, was) end
  if row.ttl and ended(row) and not ended(was) then enter_result(row) end
  if depends(row) ~= depends(was) then
    if depends(row) then enter_dependencies(row) else leave_dependencies(row) end
  end
end

-- Index entries of many rows, written at once by flush.

local additions, increments = {}, {}

local function buffer_add(key, score, member)
  local list = additions[key]
  if not list then
    list = {}
    additions[key] = list
  end
  list[#list + 1] = score
  list[#list + 1] = member
end

local function buffer_count(key, field, change)
  local counts = increments[key] or {}
  increments[key] = counts
  counts[field] = (counts[field] or 0) + change
end

local function flush()
  for key, list in pairs(additions) do send('ZADD', key, list) end
  for key, counts in pairs(increments) do add_counts(key, counts) end
  additions, increments = {}, {}
end

-- Begins the next run, which has not started: requests that arrive before its start join it.
local function start_new_run(row)
  row[RUN], row[STARTED], row[OPEN], row[FAILED_KIDS], row[TOTAL_CHUNKS] = row[RUN] + 1, 0, 0, 0, 0
  set(row, 'prog', false)
end
