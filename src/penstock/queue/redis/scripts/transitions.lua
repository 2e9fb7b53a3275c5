-- State transitions of rows; the rules are in transitions.py. Rows are changed in place and saved by the caller.
-- Needs rows.lua, turns.lua and resumes.lua. A settlement is a list with the positions S_*.

--@constants
local S_ID, S_CLAIM, S_STATUS, S_WHAT, S_RETRIES, S_LOST, S_DELAY = 1, 2, 3, 4, 5, 6, 7
local S_WAITING_FOR, S_KEEP, S_CODE, S_ERROR, S_NOTE, S_RESULT, S_PROGRESS, S_CHILDREN = 8, 9, 10, 11, 12, 13, 14, 15
--@end

local function user_cancel(row)
  return {row.id, row[CLAIM], CANCELLED, 'cancelled', row[RETRIES], row[LOST], 0, false, false, CANCELLED_CODE,
    CANCELLED_MESSAGE, CANCELLED_MESSAGE, false, false, {}}
end

local function record(row, what, note)
  local raw = row.hist or call('HGET', row.key, 'hist')
  local events = raw and cmsgpack.unpack(raw) or {}
  local last = events[#events]
  -- Repeated releases for the same reason are recorded once, with the last time.
  if what == 'released' and last and last[2] == what and last[3] == (note or false) then table.remove(events) end
  events[#events + 1] = {number(now), what, note or false, row[WORKER]}
  if #events > HISTORY_LIMIT then table.remove(events, 1) end
  row.hist = cmsgpack.pack(events)
  set(row, 'hist', row.hist)
end

local function with_thousands(count)
  local text = number(count)
  repeat
    local longer = string.gsub(text, '^(%d+)(%d%d%d)', '%1,%2')
    local changed = longer ~= text
    text = longer
  until not changed
  return text
end

-- Begins the next run with the values of the follow-up.
local function begin_next_run(row, following)
  start_new_run(row)
  row[OP], row[PRIORITY], row[MAX_RETRIES], row[TIMEOUT] = following[1], following[4], following[5], following[6]
  row[CANCEL] = 0
  set(row, 'body', following[2])
  set(row, 'meta', following[3] ~= '{}' and following[3])
  set(row, 'next', false)
end

local function wait_for(row, settlement, waiting_for)
  -- The new claim number fences off the worker that handed the job over.
  row[LEASE], row[WAITING_FOR], row[CLAIM] = 0, waiting_for or '', row[CLAIM] + 1
  if settlement[S_PROGRESS] and settlement[S_PROGRESS] ~= '' then set(row, 'prog', settlement[S_PROGRESS]) end
  if settlement[S_RESULT] and settlement[S_RESULT] ~= '' then set(row, 'res', settlement[S_RESULT]) end
end

local function return_to_queue(row, settlement)
  local later, following = settlement[S_DELAY] > 0, row.next and cmsgpack.unpack(row.next)
  record(row, settlement[S_WHAT], following and FOLLOW_UP_NOTE or settlement[S_NOTE])
  row[STATUS], row[LEASE], row[WAITING_FOR] = PENDING, 0, ''
  row[RETRIES], row[LOST] = settlement[S_RETRIES], settlement[S_LOST]
  row[HELD], row[RUN_AT] = later and TIMED or FREE, later and now + settlement[S_DELAY] or 0
  row[TURN] = settlement[S_LOST] > 0 and SUSPECT or RETURNED
  if settlement[S_PROGRESS] then set(row, 'prog', settlement[S_PROGRESS]) end
  if settlement[S_CODE] then
    row[CODE], row[ERROR_AT] = settlement[S_CODE], now
    set(row, 'err', settlement[S_ERROR])
  end
  if following then
    begin_next_run(row, following)
    row[RETRIES] = math.min(settlement[S_RETRIES], following[5])
  end
end

local function start_over(row, following)
  local later = following[7] > now
  record(row, 'follow-up', 'run ' .. row[RUN] + 1 .. ': ' .. following[1])
  begin_next_run(row, following)
  row[STATUS], row[RETRIES], row[LOST], row[WAITING_FOR], row[FINISHED] = PENDING, 0, 0, '', 0
  row[HELD], row[RUN_AT] = later and TIMED or FREE, later and following[7] or 0
  if later then row[TURN] = RETURNED else assign_position(row) end
end

-- Number of chunks in the result of a child; see chunks_in in rules/settlement.py.
local function chunks_in(result)
  if not result or not string.find(result, '"chunks"', 1, true) then return 0 end
  local readable, value = pcall(cjson.decode, result)
  local made = readable and type(value) == 'table' and value.chunks
  if type(made) ~= 'number' or made < 0 or made > MOST_CHUNKS or made % 1 ~= 0 then return 0 end
  return made
end

-- Ends a row. ``result`` nil keeps the stored result, false removes it.
local function finish(row, settlement, result)
  local following = row.next and cmsgpack.unpack(row.next)
  row[LOCKED], row[LEASE], row[HELD], row[RUN_AT] = 0, 0, FREE, 0
  row[STATUS], row[FINISHED], row[CODE] = settlement[S_STATUS], now, settlement[S_CODE] or ''
  set(row, 'err', settlement[S_ERROR])
  if result ~= nil then set(row, 'res', result) end
  if row.kin then
    local stored = result
    if stored == nil then stored = call('HGET', row.key, 'res') end
    row.made = chunks_in(stored)
  end
  if settlement[S_STATUS] ~= DONE then
    row[LOST], row[RETRIES], row[ERROR_AT] = settlement[S_LOST], settlement[S_RETRIES], now
    if settlement[S_PROGRESS] and settlement[S_PROGRESS] ~= '' then set(row, 'prog', settlement[S_PROGRESS]) end
    -- A follow-up run is recorded instead of the end.
    if not following then record(row, settlement[S_WHAT], settlement[S_NOTE]) end
  end
  if following then start_over(row, following) end
end

-- transitions.settled. The row already counts the settlement's children.
local function settled(row, settlement)
  local status = settlement[S_STATUS]
  row[UPDATED] = now
  if settlement[S_KEEP] then
    if settlement[S_PROGRESS] and settlement[S_PROGRESS] ~= '' then set(row, 'prog', settlement[S_PROGRESS]) end
  elseif status == RUNNING then
    wait_for(row, settlement, settlement[S_WAITING_FOR])
  elseif status == PENDING then
    if row[CANCEL] == 1 then settled(row, user_cancel(row)) else return_to_queue(row, settlement) end
  elseif row[OPEN] > 0 and status ~= FAILED then
    -- A parent ends as done or cancelled only after its children.
    wait_for(row, settlement, CHILDREN)
    if status == CANCELLED then row[CANCEL] = 1 end
  else
    finish(row, settlement, settlement[S_RESULT])
  end
end

-- transitions.cancelled: a cancel by a user.
local function cancelled(row)
  row[UPDATED] = now
  if row[LEASE] == 0 and row[OPEN] == 0 then
    set(row, 'next', false)
    finish(row, user_cancel(row), false)
    return
  end
  record(row, 'cancel requested')
  row[CANCEL] = 1
  set(row, 'next', false)
  if row[LEASE] == 0 then
    row[STATUS], row[WAITING_FOR], row[HELD], row[RUN_AT] = RUNNING, CHILDREN, FREE, 0
  end
end

-- transitions.children_ended: ends a waiting parent after its last child.
local function children_ended(row)
  if row[FAILED_KIDS] > 0 then
    local kids = kids_of(row)
    local total, named = call('ZCARD', kids), call('ZRANGEBYSCORE', kids, 2, 2, 'LIMIT', 0, NAMED_FAILURES)
    local message = string.format(CHILDREN_FAILED, with_thousands(row[FAILED_KIDS]), with_thousands(total),
      (CHILD_NOUNS)[row.who[TYPE]] or OTHER_CHILDREN,
      table.concat(named, ', ') .. (row[FAILED_KIDS] > #named and AND_MORE or ''))
    finish(row, {row.id, row[CLAIM], FAILED, 'failed', row[RETRIES], row[LOST], 0, false, false,
      CHILDREN_FAILED_CODE, message, message, false, false, {}}, nil)
  elseif row[CANCEL] == 1 then
    finish(row, user_cancel(row), nil)
  else
    finish(row, {row.id, row[CLAIM], DONE, 'done', 0, 0, 0, false, false, false, false, false}, nil)
  end
end

-- Forgets the cancel that a retry takes back: it is no error of an attempt.
local function forget_cancel(row)
  if row[STATUS] ~= CANCELLED then return end
  row[CODE], row[ERROR_AT] = '', 0
  set(row, 'err', false)
end

-- transitions.requeued: a retry by a user.
local function requeued(row, keep_retries)
  record(row, 'requeued')
  forget_cancel(row)
  row[STATUS], row[RUN], row[UPDATED], row[FINISHED] = PENDING, row[RUN] + 1, now, 0
  if not keep_retries then row[RETRIES] = 0 end
  row[HELD], row[RUN_AT], row[WAITING_FOR], row[CANCEL], row[OPEN], row[FAILED_KIDS] = FREE, 0, '', 0, 0, 0
  row[TOTAL_CHUNKS] = 0
  set(row, 'prog', false)
  if row[LOST] > 0 then row[TURN] = SUSPECT else assign_position(row) end
end

-- transitions.reopened: a parent waits again for a requeued child, and holds its lock again.
local function reopened(row)
  record(row, 'reopened')
  forget_cancel(row)
  row[STATUS], row[WAITING_FOR], row[CLAIM] = RUNNING, CHILDREN, row[CLAIM] + 1
  row[CANCEL], row[FINISHED], row[UPDATED], row[LOCKED] = 0, 0, now, lock_of(row) and 1 or 0
end
