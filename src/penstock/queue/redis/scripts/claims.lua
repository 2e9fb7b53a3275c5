-- One claim; the rules are in rules/candidates.py. Needs pauses.lua. Keys: ready, later, pauses, locks, job:ID, lease,
-- flow:PRIORITY:TENANT, counts, backlog, front:LOCK, and for rows to hold back: paused and parked:LOCK.

-- Whether a parked row of the same lock and priority comes before this member of ready.
local function parked_before(member)
  local raw = call('HMGET', P .. 'job:' .. string.sub(member, 15), 'id', 'row')
  local _, _, lock = struct.unpack('Bsss', raw[1])
  local _, locked, _, _, _, _, _, _, _, _, _, priority = struct.unpack(HEAD, raw[2])
  if lock == '' or locked == 1 then return false end
  local key, low = P .. 'parked:' .. lock, number((10 - priority) * STRIDE)
  local parked = call('ZRANGEBYSCORE', key, low, number((11 - priority) * STRIDE - 1), 'WITHSCORES', 'LIMIT', 0, 1)
  if #parked == 0 then return false end
  local own, other = tonumber(call('ZSCORE', P .. 'ready', member)), tonumber(parked[2])
  return other < own or (other == own and precedes(parked[1], member))
end

local function candidates(size, oldest)
  local found = call('ZRANGE', P .. 'ready', '0', size - 1)
  if not oldest or #found == 0 then return found end
  local first
  for priority = 10, 0, -1 do
    local low = (10 - priority) * STRIDE
    local head = call('ZRANGEBYSCORE', P .. 'ready', number(low), number(low + STRIDE - 1), 'LIMIT', 0, 1)[1]
    if head and (not first or precedes(head, first)) then first = head end
  end
  if parked_before(first) then return found end
  local ordered = {first}
  for _, member in ipairs(found) do
    if member ~= first and #ordered < size then ordered[#ordered + 1] = member end
  end
  return ordered
end

local function leave_backlog(class, counts)
  local all, changes = 0, {}
  for tenant, count in pairs(counts) do
    all = all + count
    changes[class .. ':' .. tenant] = -count
  end
  changes[class] = -all
  add_counts(P .. 'backlog', changes)
end

-- Takes claimable rows in the given order (``in_order``: the order of ready, from its head). Returns the number of
-- taken rows, the rows to hold back with the reason, and whether the claim is closed.
local function take(request, members, in_order, room, answer, scopes)
  local gone, leases, flows, kinds, functions, indexing, keyed, kept = {}, {}, {}, {}, {}, {}, {}, {}
  local taken, looked_at, closed = 0, 0, false
  local unpack_struct, pack_struct, by_type, paused = struct.unpack, struct.pack, request[5], #scopes > 0
  local jobs, locks, flow_prefix = P .. 'job:', P .. 'locks', P .. 'flow:'
  local worker, times_till, score_till, plain_until = request[1], {}, {}, now + request[3]
  local n = #answer
  local first = n == 5
  for i = 1, #members do
    if taken == room then
      closed = true
      break
    end
    looked_at = i
    local member = members[i]
    local id = string.sub(member, 15)
    local job = jobs .. id
    local raw = call('HMGET', job, 'id', 'row', 'body')
    local _, kind, lock, tenant = unpack_struct('Bsss', raw[1])
    local _, locked, claim, _, _, _, _, before, _, _, _, priority, more, turn = unpack_struct(HEAD, raw[2])
    if paused and covered(scopes, tenant, ({unpack_struct(WHO, raw[1])})[COLLECTION]) then
      kept[#kept + 1] = {id, PAUSED}
    elseif lock ~= '' and locked == 0 and call('HSETNX', locks, lock, id) == 0 then
      kept[#kept + 1] = {id, PARKED}
    else
      local suspect = turn == SUSPECT
      -- A crash suspect is claimed alone: it may take its process down.
      if suspect and not (first and taken == 0) then
        if lock ~= '' and locked == 0 then call('HDEL', locks, lock) end
        closed = true
        break
      end
      local till = by_type[kind] and now + by_type[kind] or plain_until
      local times = times_till[till]
      if not times then
        times = pack_struct('>dddds', till, now, now, 0, worker)
        times_till[till], score_till[till] = times, number(till)
      end
      -- Status, lock; claim number; lease, updated_at, started_at, no end, worker; the rest.
      local state = (lock ~= '' and '\2\1' or '\2\0') .. pack_struct('>i4', claim + 1) .. times
        .. string.sub(raw[2], 40 + #before)
      call('HSET', job, 'row', state)
      taken = taken + 1
      gone[taken] = member
      leases[2 * taken - 1], leases[2 * taken] = score_till[till], id
      if turn < 0 and lock ~= '' then call('ZREM', P .. 'front:' .. lock, member) end
      if turn >= 0 then
        local tenants = flows[priority]
        if not tenants then
          tenants = {}
          flows[priority] = tenants
        end
        local list = tenants[tenant]
        if list then list[#list + 1] = id else tenants[tenant] = {id} end
      end
      kinds[kind] = (kinds[kind] or 0) + 1
      local others = more == 1 and call('HMGET', job, 'kin', 'meta', 'prog', 'bkey')
      if not others or not others[1] then
        local counts = kind == FUNCTION and functions or indexing
        counts[tenant] = (counts[tenant] or 0) + 1
        local key = others and others[4] and 'k:' .. others[4]
        if key then keyed[key] = (keyed[key] or 0) - 1 end
      end
      answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4], answer[n + 5] = id, raw[1], state, raw[3], false
      n = n + 5
      if others then
        answer[n], answer[n + 1], answer[n + 2], answer[n + 3] = more, others[1], others[2], others[3]
        n = n + 3
      end
      if suspect then
        closed = true
        break
      end
    end
  end
  if taken > 0 and taken == looked_at and in_order then
    call('ZREMRANGEBYRANK', P .. 'ready', '0', taken - 1)
  else
    send('ZREM', P .. 'ready', gone)
  end
  send('ZADD', P .. 'lease', leases)
  for priority, tenants in pairs(flows) do
    for tenant, list in pairs(tenants) do send('ZREM', flow_prefix .. priority .. ':' .. tenant, list) end
  end
  for kind, count in pairs(kinds) do
    call('HINCRBY', P .. 'counts', PENDING_FREE .. kind, -count)
    call('HINCRBY', P .. 'counts', RUNNING_FREE .. kind, count)
  end
  leave_backlog('f', functions)
  leave_backlog('i', indexing)
  add_counts(P .. 'backlog', keyed)
  return taken, kept, closed or taken == room
end

-- A request is {worker_id, limit, lease, oldest, lease by item_type}. Returns {flags, rows read, the three values of settle,
-- and of each job: id, fixed columns, row, body, nil or 1, and after 1: kin, meta, prog}. Flags: 1 = all candidates were
-- seen (0: call again), 2 = a resume is active.
local function claim(request, statuses, to_stop, to_resolve)
  local answer, read, taken = {1, 0, statuses or '', to_stop or false, to_resolve or false}, 0, 0
  local scopes, all_paused, resuming = active_pauses()
  if resuming then answer[1] = 3 end
  if all_paused then return answer end
  if #call('ZRANGEBYSCORE', P .. 'later', '-inf', now_text, 'LIMIT', '0', '1') > 0 then
    rest().promote(math.max(request[2], DUE_AT_ONCE))
  end
  local size, limit, held = request[2], request[2], false
  for round = 1, ROUNDS do
    local oldest = request[4] and round == 1
    local found = candidates(size, oldest)
    read = read + #found
    local number_taken, kept, closed = take(request, found, not oldest, limit - taken, answer, scopes)
    taken = taken + number_taken
    for _, entry in ipairs(kept) do rest().hold_by_id(entry[1], entry[2]) end
    held = held or #kept > 0
    if closed or #kept == 0 then break end
    if round == ROUNDS and taken == 0 then answer[1] = answer[1] - 1 end
    size = math.max(limit, HELD_BACK_AT_ONCE)
  end
  if held then rest().pass_over_limited() end
  answer[2] = read
  return answer
end
