-- Dependencies; the rules are in rules/dependencies.py. Needs transitions.lua. Keys: waits:ID, awaited and those of rows.

-- What a row waits for: whether it has to wait, or the id of the job that failed. ``known``: rows of the same call.
local function verdict(ids, run_after_failure, known_ids)
  local waits = false
  for _, id in ipairs(ids) do
    local row = load(id)
    local status = row and row[STATUS] or (known_ids and known_ids[id] and PENDING)
    if status and status < DONE then waits = true end
    if not run_after_failure and (status == FAILED or status == CANCELLED) then return false, id end
  end
  return waits, nil
end

-- Marks rows as awaited, ended ones too: one that is requeued is waited for again.
local function await_rows(ids)
  for _, id in ipairs(ids) do
    local row = load(id)
    if row and not row.awaited then
      local was = copy(row)
      row.awaited = '1'
      set(row, 'awaited', '1')
      save(row, was)
    end
  end
end

local function encoded(ids, run_after_failure)
  local texts = {}
  for i, id in ipairs(ids) do texts[i] = string.gsub(cjson.encode(id), '\\/', '/') end
  return '{"after":[' .. table.concat(texts, ',') .. ']' .. (run_after_failure and ',"run_after_failure":true' or '') .. '}'
end

-- A requeued row waits again for those of its dependencies that are live.
local function wait_again(row)
  local live = {}
  for _, id in ipairs(dependencies_of(row)) do
    local other = load(id)
    if other and not ended(other) then live[#live + 1] = id end
  end
  if #live > 0 then
    await_rows(live)
    row[HELD], row[TURN] = DEPENDENT, row[LOST] > 0 and SUSPECT or 0
    row.after = encoded(live, cjson.decode(row.after).run_after_failure)
    set(row, 'after', row.after)
  end
end

local function release_dependent(row)
  row[UPDATED] = now
  if row[RUN_AT] > now then
    row[HELD], row[TURN] = TIMED, math.min(row[TURN], RETURNED)
    return
  end
  local turn = row[TURN]
  row[HELD], row[RUN_AT] = FREE, 0
  assign_position(row)
  if turn < 0 then row[TURN] = turn end
end

local function cancel_dependent(row, failed)
  local what = load(failed)[STATUS] == FAILED and 'failed' or 'was cancelled'
  local message = string.format(DEPENDENCY_MESSAGE, failed, what)
  settled(row, {row.id, row[CLAIM], CANCELLED, 'cancelled', row[RETRIES], row[LOST], 0, false, false,
    DEPENDENCY_FAILED, message, message, false, false, {}})
end

-- Releases or cancels rows that wait for ended ones. Returns the places to continue from after ``limit`` rows.
local function resolve(left, limit)
  while #left > 0 and limit > 0 do
    local id, last = string.match(left[1], '^([^%z]*)%z?(.*)$')
    local batch = call('ZRANGEBYLEX', P .. 'waits:' .. id, last == '' and '-' or '(' .. last, '+', 'LIMIT', 0, limit)
    local rest = {}
    if #batch == limit then rest[1] = id .. '\0' .. batch[#batch] end
    for i = 2, #left do rest[#rest + 1] = left[i] end
    for _, each in ipairs(batch) do
      local row = load(each)
      local found = cjson.decode(row.after)
      local waits, failed = verdict(found.after, found.run_after_failure)
      local was = copy(row)
      if failed then cancel_dependent(row, failed) elseif not waits then release_dependent(row) end
      if failed or not waits then save(row, was) end
      if ended(row) and row.awaited then rest[#rest + 1] = row.id end
    end
    limit = limit - math.max(#batch, 1)
    left = rest
  end
  return left
end
