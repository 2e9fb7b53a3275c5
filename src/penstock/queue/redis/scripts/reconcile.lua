-- reconcile: limit. See reconcile in rules/settlement.py. Returns {corrected rows, parents with children to cancel,
-- parents with children to requeue, places to resolve}. Keys: lockers, locks, ready, waiting and those of rows.
local limit = tonumber(ARGV[2])

-- Free locks with parked rows and without a claimable row that would take them. The row woken for a lock has a turn
-- below 0, so it is at the head of its priority; the rest of ready is only read after damage.
local function idle_locks()
  local idle, left = {}, 0
  for _, lock in ipairs(call('ZRANGE', P .. 'lockers', 0, -1)) do
    if call('HEXISTS', P .. 'locks', lock) == 0 then
      idle[lock] = true
      left = left + 1
    end
  end
  local function look(low, high)
    local at, members = 0, nil
    repeat
      members = call('ZRANGEBYSCORE', P .. 'ready', number(low), number(high), 'LIMIT', at, 1000)
      for _, member in ipairs(members) do
        local who = {struct.unpack(WHO, call('HGET', P .. 'job:' .. id_in(member), 'id'))}
        if idle[who[LOCK]] then
          idle[who[LOCK]] = nil
          left = left - 1
        end
      end
      at = at + 1000
    until left == 0 or #members < 1000
  end
  for priority = 0, 10 do
    if left > 0 then look((10 - priority) * STRIDE, (10 - priority) * STRIDE + 1) end
  end
  if left > 0 then look(0, 11 * STRIDE) end
  local found = {}
  for lock in pairs(idle) do found[#found + 1] = lock end
  table.sort(found, precedes)
  return found
end

local repaired, to_return, doubtful = 0, {}, 0
for i, lock in ipairs(idle_locks()) do
  if i <= limit and wake(lock) then repaired = repaired + 1 end
end

for _, id in ipairs(call('ZRANGE', P .. 'waiting', 0, -1)) do
  local row = load(id)
  if doubtful < limit and row[WAITING_FOR] == CHILDREN then
    local kids = kids_of(row)
    local open, failed = call('ZCOUNT', kids, 0, 1), call('ZCOUNT', kids, 2, 2)
    local right = row[OPEN] == open and row[FAILED_KIDS] == failed
    if row[CANCEL] == 1 or not right or row[OPEN] == 0 then
      doubtful = doubtful + 1
      local was = copy(row)
      if not right then
        row[OPEN], row[FAILED_KIDS] = open, failed
        save(row, was)
        repaired = repaired + 1
      end
      if open == 0 and row[CANCEL] == 0 and #retryable(row, 1) > 0 then
        -- The row waits for no child: a requeue was interrupted before it reached the children.
        to_return[#to_return + 1] = id
      else
        collect(row, was)
      end
    end
  end
end
apply_aftermath()
admit_touched()
if repaired + #to_return > 0 then notify() end
return {repaired + #to_return, to_stop, to_return, to_resolve}
