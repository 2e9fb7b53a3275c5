-- Plain ends, the hot half of settle: done, without follow-up, parent, children, limit or result with a time to
-- live, awaited by no job. Needs keys.lua.
-- Keys: job:ID, locks, keys, lease, live, ended:done, counts.

--@constants
local HOT_WHO = 'Bss'
--@end
local NONE = {}

local function with_more(state)
  local row = {struct.unpack(STATE, state)}
  row[MORE] = 1
  return struct.pack(STATE, unpack(row, 1, SIZE))
end

-- Ends plain jobs and returns their new statuses. Settlements are columns, not a list for each, which costs a table for
-- each: ids, claim numbers, results (or false), and by position those that are no plain end (see codec.settlements).
local function finish_plain(settlements)
  local ids, claims, results, long = settlements[1], settlements[2], settlements[3], settlements[4]
  local answers, gone, finished, kinds, locks, keys = {}, {}, {}, {}, {}, {}
  local unpack_struct, find, instant = struct.unpack, string.find, struct.pack('>d', now)
  local ends = struct.pack('>d', 0) .. instant
  local jobs, n = P .. 'job:', 0
  for i = 1, #ids do
    local id, result = ids[i], results[i]
    local job = jobs .. id
    local raw = not long[i] and call('HMGET', job, 'row', 'id')
    if raw and raw[1] then
      local status, locked, claim, lease, _, _, _, worker, code, _, _, _, more, _, open = unpack_struct(HEAD, raw[1])
      local others = more == 1 and call('HMGET', job, 'kin', 'next', 'err', 'res', 'awaited', 'limit', 'ttl') or NONE
      local plain = not (others[1] or others[2] or others[5] or others[6] or others[7])
      if plain and status == RUNNING and claim == claims[i] and open == 0 and lease > 0 then
        local dedupe, kind, lock, from = unpack_struct(HOT_WHO, raw[2])
        -- Status, lock; claim number; lease, updated_at; started_at; finished_at; worker, no error; the rest.
        local state = '\3\0' .. string.sub(raw[1], 3, 6) .. ends .. string.sub(raw[1], 23, 30) .. instant .. worker
          .. '\0\0' .. string.sub(raw[1], 41 + #worker + #code)
        if result and more == 0 then state = with_more(state) end
        if result then call('HSET', job, 'row', state, 'res', result) else call('HSET', job, 'row', state) end
        if others[3] then call('HDEL', job, 'err') end
        if others[4] and not result then call('HDEL', job, 'res') end
        if locked == 1 then locks[#locks + 1] = lock end
        if dedupe == 1 then
          -- Tenant, branch and key, as key_of in rows.lua, are there side by side.
          local third = find(raw[2], '\0', find(raw[2], '\0', find(raw[2], '\0', from, true) + 1, true) + 1, true)
          keys[#keys + 1] = string.sub(raw[2], from, third - 1)
        end
        n = n + 1
        gone[n], finished[2 * n - 1], finished[2 * n] = id, now_text, id
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
    call('HINCRBY', P .. 'counts', RUNNING_FREE .. kind, -count)
    call('HINCRBY', P .. 'counts', DONE_FREE .. kind, count)
  end
  return answers
end

-- Whether all ends may go before the other settlements. Two plain ends of one job are applied in order in any case.
local function distinct(settlements)
  if not next(settlements[4]) then return true end
  local seen = {}
  for _, id in ipairs(settlements[1]) do
    if seen[id] then return false end
    seen[id] = true
  end
  return true
end

-- Returns the new statuses as digits, 0 for a lost claim, the parents with children to cancel and the places to resolve.
-- Those are false if there are none: each table in an answer costs the server a block of 16 KiB.
local function settle(settlements)
  local answers, count = {}, #settlements[1]
  -- With parked rows every end has to pass on its lock, and two settlements of one job must be applied in order:
  -- only the general path does that.
  if count > 0 and call('EXISTS', P .. 'lockers') == 0 and distinct(settlements) then
    answers = finish_plain(settlements)
  end
  for i = 1, count do
    if not answers[i] then return rest().settle(settlements, answers) end
  end
  return string.rep(DONE, count), false, false
end

-- Returns the id of a new child that exists already. Called before the first write.
local function taken_child(settlements)
  for _, settlement in pairs(settlements[4]) do
    if #settlement[15] > 0 then return rest().taken_child(settlements) end
  end
  -- No new rows.
  allow_without_memory()
end
