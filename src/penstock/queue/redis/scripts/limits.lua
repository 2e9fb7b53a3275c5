-- Limits; the rules are in limits.py and rules/limits.py. Needs rows.lua, turns.lua, resumes.lua and locks.lua. A stored
-- limit is a list with the positions L_*, where 0 means none. Keys: limits, limited:KEY, admitted:KEY, pauses and those of rows.

--@constants
local L_CONCURRENT, L_STARTS, L_PERIOD, L_NEXT = 1, 2, 3, 4
--@end

local function interval_of(limit)
  return math.ceil(limit[L_PERIOD] * COUNT_CAP / limit[L_STARTS])
end

local function most_unclaimed(limit)
  return math.max(1, math.ceil(AHEAD / interval_of(limit)))
end

-- Rows of a key with a slot that no worker has claimed, up to ``most``.
local function count_unclaimed(key, most)
  local count = 0
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'admitted:' .. key, '-inf', number(now + AHEAD))) do
    if load(id)[STATUS] == PENDING then count = count + 1 end
    if count == most then break end
  end
  return count
end

-- limits.next_starts: how many rows of a key may start, the first time, and the time between two.
local function next_starts(limit, key, most)
  if not limit then return most, now, 0 end
  local free = most
  if limit[L_CONCURRENT] > 0 then
    free = math.max(0, math.min(free, limit[L_CONCURRENT] - call('ZCARD', P .. 'admitted:' .. key)))
  end
  if limit[L_STARTS] == 0 then return free, now, 0 end
  local interval, unclaimed = interval_of(limit), most_unclaimed(limit)
  local at = math.max(now, limit[L_NEXT])
  if at > now + AHEAD + interval then at = now end
  if at > now + AHEAD then return 0, at, interval end
  free = math.min(free, unclaimed - count_unclaimed(key, unclaimed))
  return math.max(0, math.min(free, math.floor((now + AHEAD - at) / interval) + 1)), at, interval
end

local function admit_row(row, start)
  local was = copy(row)
  row[UPDATED], row.go = now, start
  set(row, 'go', number(start))
  -- With its lock: a row with a slot waits for nothing.
  if lock_of(row) then row[LOCKED] = 1 end
  if start > now then
    row[HELD], row[RUN_AT], row[TURN] = TIMED, start, math.min(row[TURN], RETURNED)
  else
    row[HELD] = FREE
    if row[TURN] >= 0 then row[TURN] = new_turn(row.who[TENANT], row[PRIORITY]) end
  end
  save(row, was)
end

-- pause_batches.held_back
local function hold_limited(row, reason)
  local was = copy(row)
  local woken = row[TURN] == RETURNED and lock_of(row) and row[LOCKED] == 0
  row[HELD], row[UPDATED] = reason, now
  if reason == PAUSED and (woken or row[TURN] > 0) then row[TURN] = 0 end
  save(row, was)
  -- The row may have been the one woken to take its lock next.
  if reason == PAUSED and lock_of(row) and row[LOCKED] == 0 then wake(lock_of(row)) end
end

local function wants_taken_lock(row)
  local lock = lock_of(row)
  return lock and row[LOCKED] == 0 and call('HEXISTS', P .. 'locks', lock) == 1
end

-- Returns the number of rows looked at.
local function admit_key(key)
  local raw = call('HGET', P .. 'limits', key)
  local limit, seen, known_pauses = raw and cmsgpack.unpack(raw), 0, pauses()
  while seen < ADMITTED_AT_ONCE do
    local most, at, interval = next_starts(limit, key, ADMITTED_AT_ONCE - seen)
    local batch = most > 0 and call('ZRANGE', P .. 'limited:' .. key, 0, most - 1) or {}
    local free = 0
    for _, member in ipairs(batch) do
      local row = load(id_in(member))
      if is_kept(known_pauses, row) then
        hold_limited(row, PAUSED)
      elseif wants_taken_lock(row) then
        hold_limited(row, PARKED)
      else
        admit_row(row, at + free * interval)
        free = free + 1
      end
    end
    seen = seen + #batch
    if free > 0 and interval > 0 then
      limit[L_NEXT] = at + free * interval
      call('HSET', P .. 'limits', key, cmsgpack.pack(limit))
    end
    if free == #batch then break end
  end
  return seen
end

-- Releases rows of the keys that this script has touched. Returns the number of rows looked at.
local function admit_touched()
  local keys, seen = {}, 0
  for key in pairs(limit_keys) do keys[#keys + 1] = key end
  table.sort(keys, precedes)
  for _, key in ipairs(keys) do seen = seen + admit_key(key) end
  pass_over_limited()
  limit_keys = {}
  return seen
end
