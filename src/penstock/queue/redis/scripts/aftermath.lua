-- Effects of changed rows on others; see Aftermath in rules/settlement.py: parents to count, locks to pass on,
-- children to stop, rows that wait. Needs dependencies.lua and locks.lua. Keys: locks, lockers, parked:LOCK, kids:RUN:ID and those of a row.

local over, freed, to_stop, to_resolve, awaited = {}, {}, {}, {}, {}

local function count_child(id, run, total, failed, chunks)
  local place = run .. ':' .. id
  local entry = over[place]
  if not entry then
    entry = {id = id, run = run, total = 0, failed = 0, chunks = 0}
    over[place] = entry
  end
  entry.total, entry.failed, entry.chunks = entry.total + total, entry.failed + failed, entry.chunks + chunks
end

local function collect(row, was)
  if was[LOCKED] == 1 and row[LOCKED] == 0 then freed[row.who[LOCK]] = true end
  if row.kin and ended(row) and not ended(was) then
    count_child(row.kin[PARENT], row.kin[PARENT_RUN], 1, row[STATUS] == FAILED and 1 or 0, row.made or 0)
  end
  if row.awaited and ended(row) and not ended(was) then awaited[#awaited + 1] = row.id end
  if waiting(row) and row[WAITING_FOR] == CHILDREN then
    if row[OPEN] == 0 then
      count_child(row.id, row[RUN], 0, 0, 0)
    elseif row[CANCEL] == 1 then
      to_stop[#to_stop + 1] = row.id
    end
  end
end

local function count_children(entry)
  local parent = load(entry.id)
  if not parent or parent[RUN] ~= entry.run then return end
  local was = copy(parent)
  parent[OPEN], parent[FAILED_KIDS] = parent[OPEN] - entry.total, parent[FAILED_KIDS] + entry.failed
  parent[TOTAL_CHUNKS], parent[UPDATED] = parent[TOTAL_CHUNKS] + entry.chunks, now
  if waiting(parent) and parent[WAITING_FOR] == CHILDREN and parent[OPEN] == 0 then children_ended(parent) end
  save(parent, was)
  collect(parent, was)
end

local function apply_aftermath()
  while next(over) do
    local parents = {}
    for _, entry in pairs(over) do parents[#parents + 1] = entry end
    over = {}
    table.sort(parents, function(a, b)
      if a.id == b.id then return a.run < b.run end
      return precedes(a.id, b.id)
    end)
    for _, entry in ipairs(parents) do count_children(entry) end
  end
  if #awaited > 0 then to_resolve, awaited = resolve(awaited, RESOLVED_AT_ONCE), {} end
  for lock in pairs(freed) do wake(lock) end
  freed = {}
end
