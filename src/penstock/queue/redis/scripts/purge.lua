-- purge: pairs of an id and the time of its last change. Deletes rows in any state, except those that changed since;
-- the next reconcile counts the parents. Returns the number of deleted rows.
-- Keys: job:ID and every index of a row, locks, parked:LOCK.
allow_without_memory()
local gone = 0

local function delete(row)
  local place, _, member = place_of(row, row)
  if place then
    call('ZREM', P .. place, member)
    if row[STATUS] == PENDING and row[HELD] == PARKED and call('EXISTS', P .. place) == 0 then
      call('ZREM', P .. 'lockers', row.who[LOCK])
    end
  end
  if depends(row) then leave_dependencies(row) end
  if row.limit then
    limit_keys[row.limit] = true
    call('ZREM', P .. 'admitted:' .. row.limit, row.id)
    if row[HELD] == LIMITED and call('EXISTS', P .. place) == 0 then call('ZREM', P .. 'limiters', row.limit) end
  end
  if backs_off(row) then call('ZREM', P .. 'backoff', row.id) end
  local flow = flow_of(row, row)
  if flow then call('ZREM', flow, row.id) end
  call('HINCRBY', P .. 'counts', class_of(row, row), -1)
  if not row.kin and row[STATUS] == PENDING then count_backlog(row, -1) end
  if HOMES[row[STATUS]] then call('ZREM', P .. HOMES[row[STATUS]], row.id) end
  if not row.kin and not ended(row) and row.who[DEDUPE] == 1 then call('HDEL', P .. 'keys', key_of(row.who)) end
  if row.kin then
    local own = row.kin[PARENT_RUN] .. ':' .. row.kin[PARENT]
    call('ZREM', P .. 'kids:' .. own, row.id)
    call('HDEL', P .. 'names:' .. own, row.who[KEY])
    call('ZREM', P .. 'tree:' .. row.kin[ROOT], row.id)
  end
  call('ZREM', P .. 'all', row.id)
  call('DEL', row.key)
  known[row.id] = false
  if row[LOCKED] == 1 then
    call('HDEL', P .. 'locks', row.who[LOCK])
    freed[row.who[LOCK]] = true
  end
  gone = gone + 1
end

for _, pair in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = load(pair[1])
  if row and row[UPDATED] == pair[2] then delete(row) end
end
for lock in pairs(freed) do wake(lock) end
admit_touched()
notify()
return gone
