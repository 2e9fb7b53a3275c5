-- restore: rows as {id, fixed columns, state, parent or false, {field, value, ...}, follow-up or false, history or
-- false}. Returns for each row the id of the row in its way, or ''. The rules are in rules/addition.py.

local answer, restored = {}, false

local function obstacle(row)
  if call('EXISTS', row.key) == 1 then return row.id end
  local who = row.who
  local holder = row[LOCKED] == 1 and who[LOCK] ~= '' and call('HGET', P .. 'locks', who[LOCK])
  if holder then return holder end
  return not ended(row) and not row.kin and who[DEDUPE] == 1 and call('HGET', P .. 'keys', key_of(who)) or ''
end

local function assign_turn(row)
  if row[STATUS] ~= PENDING or row[TURN] < 0 then return end
  local tenant, priority = row.who[TENANT], row[PRIORITY]
  row[TURN] = next_turn(tenant, priority)
  if row[HELD] == FREE and starts_held(row.id, row.who, priority, row[CREATED]) then
    row[HELD], row[TURN] = PAUSED, 0
  end
  if row[HELD] == FREE then
    record_turn(tenant, priority, row[TURN])
  else
    local flow = priority .. ':' .. tenant
    if lasts[flow] < row[TURN] then lasts[flow] = row[TURN] end
  end
end

local function enter_kin(row)
  local parent = row.kin[PARENT_RUN] .. ':' .. row.kin[PARENT]
  call('HSET', row.key, 'kin', struct.pack(KIN, unpack(row.kin)))
  call('HSET', P .. 'names:' .. parent, row.who[KEY], row.id)
  call('ZADD', P .. 'kids:' .. parent, child_state(row), row.id)
  call('ZADD', P .. 'tree:' .. row.kin[ROOT], ended(row) and 1 or 0, row.id)
end

local function enter(row)
  local key, score, member = place_of(row, row)
  if key then call('ZADD', P .. key, score, member) end
  if row[STATUS] == PENDING and row[HELD] == PARKED then call('ZADD', P .. 'lockers', 0, row.who[LOCK]) end
  if in_front(row, row) then call('ZADD', P .. 'front:' .. row.who[LOCK], score_of(row), member_of(row)) end
  if backs_off(row) then call('ZADD', P .. 'backoff', 0, row.id) end
  if depends(row) then enter_dependencies(row) end
  if row[STATUS] == PENDING and row[HELD] == LIMITED then call('ZADD', P .. 'limiters', 0, row.limit) end
  if row.go then call('ZADD', P .. 'admitted:' .. row.limit, number(row.go), row.id) end
  if row.ttl and ended(row) then enter_result(row) end
  local flow = flow_of(row, row)
  if flow then call('ZADD', flow, number(row[TURN]), row.id) end
  call('HINCRBY', P .. 'counts', class_of(row, row), 1)
  call('ZADD', P .. 'all', 0, row.id)
  if HOMES[row[STATUS]] then call('ZADD', P .. HOMES[row[STATUS]], 0, row.id) end
  if row[LOCKED] == 1 and row.who[LOCK] ~= '' then call('HSET', P .. 'locks', row.who[LOCK], row.id) end
  if row.kin then return enter_kin(row) end
  if row[STATUS] == PENDING then count_backlog(row, 1) end
  if not ended(row) and row.who[DEDUPE] == 1 then call('HSET', P .. 'keys', key_of(row.who), row.id) end
end

for _, given in ipairs(cmsgpack.unpack(ARGV[2])) do
  local id, who, row, kin, fields, following, history = unpack(given, 1, 7)
  row.id, row.key, row.who, row.kin = id, P .. 'job:' .. id, {struct.unpack(WHO, who)}, kin or nil
  for i = 1, #fields, 2 do
    if fields[i] == 'after' then row.after = fields[i + 1] end
    if fields[i] == 'limit' then row.limit = fields[i + 1] end
    if fields[i] == 'bkey' then row.bkey = fields[i + 1] end
    if fields[i] == 'ttl' then row.ttl = tonumber(fields[i + 1]) end
    if fields[i] == 'go' then row.go = tonumber(fields[i + 1]) end
  end
  local found = obstacle(row)
  answer[#answer + 1] = found
  if found == '' then
    restored = true
    assign_turn(row)
    call('HSET', row.key, 'id', who, 'row', packed(row), unpack(fields))
    if following then call('HSET', row.key, 'next', cmsgpack.pack(following)) end
    if history then call('HSET', row.key, 'hist', cmsgpack.pack(history)) end
    enter(row)
  end
end
if restored then notify() end
return answer
