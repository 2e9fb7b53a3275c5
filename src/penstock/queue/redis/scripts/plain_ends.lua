-- Plain ends, the hot half of settle: done, without follow-up, parent, children, limit or result with a time to
-- live, awaited by no job. Needs keys.lua.
-- Keys: job:ID, locks, keys, lease, live, ended:done, counts.

--@constants
local HOT_WHO = 'Bsssss'
--@end
local NONE = {}

local function with_more(state)
  local row = {struct.unpack(STATE, state)}
  row[MORE] = 1
  return struct.pack(STATE, unpack(row, 1, SIZE))
end

-- Ends plain jobs and returns their new statuses. A plain settlement is short: id, claim number, result or false.
local function finish_plain(settlements)
  local answers, gone, finished, kinds, locks, keys = {}, {}, {}, {}, {}, {}
  local at, unpack_struct, instant = number(now), struct.unpack, struct.pack('>d', now)
  local ends = struct.pack('>d', 0) .. instant
  local jobs = P .. 'job:'
  for i = 1, #settlements do
    local settlement = settlements[i]
    local id, result = settlement[1], settlement[3]
    local job = jobs .. id
    local raw = #settlement == 3 and call('HMGET', job, 'row', 'id')
    if raw and raw[1] then
      local status, locked, claim, lease, _, _, _, worker, code, _, _, _, more, _, open = unpack_struct(HEAD, raw[1])
      local others = more == 1 and call('HMGET', job, 'kin', 'next', 'err', 'res', 'awaited', 'limit', 'ttl') or NONE
      local plain = not (others[1] or others[2] or others[5] or others[6] or others[7])
      if plain and status == RUNNING and claim == settlement[2] and open == 0 and lease > 0 then
        local dedupe, kind, lock, tenant, branch, key = unpack_struct(HOT_WHO, raw[2])
        -- Status, lock; claim number; lease, updated_at; started_at; finished_at; worker, no error; the rest.
        local state = '\3\0' .. string.sub(raw[1], 3, 6) .. ends .. string.sub(raw[1], 23, 30) .. instant .. worker
          .. '\0\0' .. string.sub(raw[1], 41 + #worker + #code)
        if result and more == 0 then state = with_more(state) end
        if result then call('HSET', job, 'row', state, 'res', result) else call('HSET', job, 'row', state) end
        if others[3] then call('HDEL', job, 'err') end
        if others[4] and not result then call('HDEL', job, 'res') end
        if locked == 1 then locks[#locks + 1] = lock end
        if dedupe == 1 then keys[#keys + 1] = tenant .. '\0' .. branch .. '\0' .. key end
        local n = #gone
        gone[n + 1] = id
        finished[2 * n + 1], finished[2 * n + 2] = at, id
        kinds[kind] = (kinds[kind] or 0) + 1
        answers[i] = DONE
      end
    end
  end
  send('HDEL', P .. 'locks', locks)
  send('HDEL', P .. 'keys', keys)
  send('ZREM', P .. 'lease', gone)
  send('ZREM', P .. 'live', gone)
  send('ZADD', P .. 'ended:done', finished)
  for kind, count in pairs(kinds) do
    call('HINCRBY', P .. 'counts', RUNNING .. ':0:' .. kind, -count)
    call('HINCRBY', P .. 'counts', DONE .. ':0:' .. kind, count)
  end
  return answers
end

local function distinct(settlements)
  local seen = {}
  for i = 1, #settlements do
    local id = settlements[i][1]
    if seen[id] then return false end
    seen[id] = true
  end
  return true
end

-- Returns the new statuses, 0 for a lost claim, and the parents with children to cancel.
local function settle(settlements)
  local answers = {}
  -- With parked rows every end has to pass on its lock, and two settlements of one job must be applied in order:
  -- only the general path does that.
  if #settlements > 0 and call('EXISTS', P .. 'lockers') == 0 and distinct(settlements) then
    answers = finish_plain(settlements)
  end
  for i = 1, #settlements do
    if not answers[i] then return rest().settle(settlements, answers) end
  end
  return answers, {}, {}
end

-- Returns the id of a new child that exists already. Called before the first write.
local function taken_child(settlements)
  for i = 1, #settlements do
    local children = settlements[i][15]
    if children and #children > 0 then return rest().taken_child(settlements) end
  end
  -- No new rows.
  allow_without_memory()
end
