-- Requeueing; the rules are in rules/requeue.py. Needs dependencies.lua. Keys: all of a row and its relatives, keys.

local function reopens(parent, child)
  return parent[STATUS] == FAILED and parent[RUN] == child.kin[PARENT_RUN]
end

-- The live row that prevents a requeue: one that holds the lock of a row to be reopened (the job itself or an
-- ancestor), or one with the key of the job, or of the root of the failed tree that it would reopen.
local function obstacle(row, reopening)
  while true do
    local holder = reopening and lock_of(row) and call('HGET', P .. 'locks', lock_of(row))
    if holder then return holder end
    if not row.kin then break end
    local parent = load(row.kin[PARENT])
    if not parent or not reopens(parent, row) then return nil end
    row, reopening = parent, true
  end
  return row.who[DEDUPE] == 1 and call('HGET', P .. 'keys', key_of(row.who)) or nil
end

-- Failed and cancelled children of this run, ordered by id.
local function retryable(row, limit)
  local found = call('ZRANGEBYSCORE', kids_of(row), 2, 2, 'LIMIT', 0, limit)
  for _, id in ipairs(call('ZRANGEBYSCORE', kids_of(row), 3, 3, 'LIMIT', 0, limit)) do found[#found + 1] = id end
  table.sort(found, precedes)
  for i = #found, limit + 1, -1 do found[i] = nil end
  return found
end

-- Counts the child as open again, up to the root.
local function reopen_parent(child, failed)
  local parent = child.kin and load(child.kin[PARENT])
  if not parent or parent[RUN] ~= child.kin[PARENT_RUN] then return end
  local was = copy(parent)
  local reopening = reopens(parent, child)
  parent[UPDATED] = now
  if reopening then reopened(parent) end
  parent[OPEN] = parent[OPEN] + 1
  if failed then parent[FAILED_KIDS] = parent[FAILED_KIDS] - 1 end
  save(parent, was)
  if reopening then reopen_parent(parent, was[STATUS] == FAILED) end
end

-- Returns the statuses before and after (0 for no job), and the id of a live duplicate or ''.
local function requeue_one(id, keep_retries, metadata)
  local row = load(id)
  if not row then return 0, 0, '' end
  local status = row[STATUS]
  if status ~= FAILED and status ~= CANCELLED then return status, status, '' end
  local waited = row[WAITING_FOR] == CHILDREN and (row[OPEN] > 0 or #retryable(row, 1) > 0)
  local twin = obstacle(row, waited)
  if twin then return status, status, twin end
  local was = copy(row)
  if waited then
    reopened(row)
  else
    requeued(row, keep_retries)
    wait_again(row)
  end
  -- Whole texts: a decoded and encoded one would differ, as an empty list has no form of its own.
  local text = next(metadata) and metadata[call('HGET', row.key, 'meta') or '{}']
  if text then set(row, 'meta', text) end
  save(row, was)
  reopen_parent(row, status == FAILED)
  return status, row[STATUS], ''
end

-- Returns the values of requeue_one for each id, and the parents with children to requeue.
local function requeue(ids, keep_retries, metadata)
  local answers, parents = {}, {}
  for _, id in ipairs(ids) do
    local before, after, twin = requeue_one(id, keep_retries, metadata)
    local n = #answers
    answers[n + 1], answers[n + 2], answers[n + 3] = before, after, twin
    if before ~= after and after == RUNNING then parents[#parents + 1] = id end
  end
  return answers, parents
end
