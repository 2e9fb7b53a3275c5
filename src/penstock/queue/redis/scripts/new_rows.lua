-- New rows; the rules are in rules/addition.py. Needs rows.lua, turns.lua, locks.lua and pauses.lua. A new job is a
-- list with the positions NEW_*; ``after``: its dependencies as JSON, ``waits``: whether one of them has not ended.

--@constants
local NEW_ID, NEW_WHO, NEW_OP, NEW_PRIORITY, NEW_MAX, NEW_TIMEOUT = 1, 2, 3, 4, 5, 6
local NEW_RUN_AT, NEW_BODY, NEW_META, NEW_AFTER, NEW_LIMIT, NEW_BACKLOG, NEW_TTL = 7, 8, 9, 10, 11, 12, 13
--@end

local known_pauses, resumes

-- Whether a new row starts held, because a resume of its scope still has to release older rows.
local function starts_held(id, who, priority, created)
  if not known_pauses then
    known_pauses, resumes = pauses(), {}
    for _, pause in ipairs(known_pauses) do
      if pause[3] ~= PHASE_PAUSED then resumes[#resumes + 1] = pause end
    end
  end
  if #resumes == 0 then return false end
  local row = {id = id, who = who}
  row[PRIORITY], row[TURN], row[CREATED] = priority, 0, created
  return is_kept(resumes, row)
end

-- The creation time of the row at this position of the list.
local function moment_after(moment, list, i)
  return i > 1 and precedes(list[i][NEW_ID], list[i - 1][NEW_ID]) and moment + 1 or moment
end

-- Inserts a row with a free id and key; flush writes the indexes.
local function insert(new, who, created, parent)
  local id, priority = new[NEW_ID], new[NEW_PRIORITY]
  local later = new[NEW_RUN_AT] > created
  local limit = new[NEW_LIMIT] or nil
  local limited = limit and not later and not new.waits
  local kept = not later and not new.waits and not limited and starts_held(id, who, priority, created)
  local turn = RETURNED
  if kept or new.waits or limited then
    turn = 0
    record_held_row(who[TENANT], priority)
  elseif not later then
    turn = next_turn(who[TENANT], priority)
    record_turn(who[TENANT], priority, turn)
  end
  local row = {PENDING, 0, 0, 0, created, 0, 0, '', '', new.waits and DEPENDENT or later and TIMED or limited and LIMITED or kept and PAUSED or FREE, 0,
    priority, (parent or #new > NEW_META or new[NEW_META] ~= '{}') and 1 or 0, turn, 0, 1, 0, 0, 0, 0, new[NEW_MAX], new[NEW_TIMEOUT], created,
    later and new[NEW_RUN_AT] or 0, 0, new[NEW_OP], ''}
  row.id, row.key, row.who = id, P .. 'job:' .. id, who
  local fields = {'HSET', row.key, 'id', new[NEW_WHO], 'row', packed(row), 'body', new[NEW_BODY]}
  if new[NEW_META] ~= '{}' then
    fields[#fields + 1] = 'meta'
    fields[#fields + 1] = new[NEW_META]
  end
  if new.after then
    row.after = new.after
    fields[#fields + 1] = 'after'
    fields[#fields + 1] = new.after
    if new.waits then enter_dependencies(row) end
  end
  if limit then
    row.limit = limit
    fields[#fields + 1] = 'limit'
    fields[#fields + 1] = limit
  end
  if new[NEW_BACKLOG] and not parent then
    row.bkey = new[NEW_BACKLOG]
    fields[#fields + 1] = 'bkey'
    fields[#fields + 1] = row.bkey
    buffer_count(P .. 'backlog', 'k:' .. row.bkey, 1)
  end
  if new[NEW_TTL] then
    row.ttl = new[NEW_TTL]
    fields[#fields + 1] = 'ttl'
    fields[#fields + 1] = number(row.ttl)
  end
  if limited then
    buffer_add(P .. 'limiters', 0, limit)
    limit_keys[limit] = true
  end
  if parent then
    row.kin = {parent[RUN], parent.id, root_of(parent)}
    fields[#fields + 1] = 'kin'
    fields[#fields + 1] = struct.pack(KIN, unpack(row.kin))
    call('HSET', P .. 'names:' .. parent[RUN] .. ':' .. parent.id, who[KEY], id)
    buffer_add(kids_of(parent), 0, id)
    buffer_add(P .. 'tree:' .. row.kin[ROOT], 0, id)
  else
    local class = who[TYPE] == FUNCTION and 'f' or 'i'
    buffer_count(P .. 'backlog', class, 1)
    buffer_count(P .. 'backlog', class .. ':' .. who[TENANT], 1)
    if who[DEDUPE] == 1 then call('HSET', P .. 'keys', key_of(who), id) end
  end
  call(unpack(fields))
  known[id] = row
  local key, score, member = place_of(row, row)
  if key then buffer_add(P .. key, score, member) end
  buffer_add(P .. 'all', 0, id)
  buffer_add(P .. 'live', 0, id)
  buffer_count(P .. 'counts', class_of(row, row), 1)
  if turn >= 0 then buffer_add(flow_of(row, row), number(turn), id) end
end

-- transitions.coalesced: the same job is added again while it runs.
local function set_follow_up(row, new)
  local priority = row[PRIORITY]
  if row.next then priority = cmsgpack.unpack(row.next)[4] end
  set(row, 'next', cmsgpack.pack({new[NEW_OP], new[NEW_BODY], new[NEW_META],
    math.max(new[NEW_PRIORITY], priority), new[NEW_MAX], new[NEW_TIMEOUT], new[NEW_RUN_AT]}))
  -- The result of the running job would be deleted.
  if new[NEW_OP] == 'delete' and row[OP] ~= 'delete' then row[CANCEL] = 1 end
end

local function replace_request(row, new, moment)
  set(row, 'body', new[NEW_BODY])
  set(row, 'meta', new[NEW_META] ~= '{}' and new[NEW_META])
  row[OP], row[MAX_RETRIES], row[TIMEOUT], row[RETRIES] = new[NEW_OP], new[NEW_MAX], new[NEW_TIMEOUT], 0
  -- The job waits for a retry: the new run adds its children again.
  if row[STARTED] > 0 then
    start_new_run(row)
  end
  if new[NEW_PRIORITY] > row[PRIORITY] then
    if row[TURN] >= 0 and row[HELD] ~= PAUSED and row[HELD] ~= DEPENDENT and row[HELD] ~= LIMITED then row[TURN] = new_turn(row.who[TENANT], new[NEW_PRIORITY]) end
    row[PRIORITY] = new[NEW_PRIORITY]
    if row[HELD] == PAUSED and not is_kept(pauses(), row) then make_claimable(row) end
  end
  if row[HELD] == TIMED and not row.go then
    if new[NEW_RUN_AT] <= moment then
      row[HELD], row[RUN_AT] = FREE, 0
    elseif new[NEW_RUN_AT] < row[RUN_AT] then
      row[RUN_AT] = new[NEW_RUN_AT]
    end
  end
end

-- Joins a new job to a live row; ``moment``: when the job was added, see moment_after.
local function coalesce(row, new, moment)
  flush()
  local was = copy(row)
  row[UPDATED] = moment
  if row[STATUS] == RUNNING then set_follow_up(row, new) else replace_request(row, new, moment) end
  save(row, was)
  -- The row may now come before the row that was woken for this lock.
  if row[PRIORITY] > was[PRIORITY] and row[HELD] == PARKED then wake(row.who[LOCK], moment) end
  forget_turns()
end

-- Adds the children that this run of the parent does not have yet. Returns their number.
local function add_children(parent, children)
  local fresh, created = 0, now
  for i, new in ipairs(children) do
    created = moment_after(created, children, i)
    local who = {struct.unpack(WHO, new[NEW_WHO])}
    if call('HEXISTS', P .. 'names:' .. parent[RUN] .. ':' .. parent.id, who[KEY]) == 0 then
      insert(new, who, created, parent)
      fresh = fresh + 1
    end
  end
  flush()
  forget_turns()
  return fresh
end
