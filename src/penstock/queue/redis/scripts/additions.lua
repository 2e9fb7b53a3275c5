-- Adding jobs; the rules are in rules/addition.py. Needs new_rows.lua. Arguments: [limit of functions, of indexing jobs,
-- of one tenant's (-1 = none)], tenants in order, new jobs, [key, limit, ...] of functions with a limit of their own. Keys: all but lease, pauses, workers.

local request = cmsgpack.unpack(ARGV[2])
local limits, tenants, jobs, keyed = request[1], request[2], request[3], request[4]
local whos, taken = {}, {}

-- The id of a job that exists already, or is given twice.
local function taken_id()
  for i, new in ipairs(jobs) do
    local id = new[NEW_ID]
    if taken[id] or call('EXISTS', P .. 'job:' .. id) == 1 then return id end
    taken[id] = true
    whos[i] = {struct.unpack(WHO, new[NEW_WHO])}
  end
end

local function live(who)
  return call('HGET', P .. 'keys', key_of(who))
end

-- Counts the jobs that are meant, and how many of them would be new rows: a job that joins a live row is accepted even
-- when the queue is full.
local function count_new(meant)
  local all, fresh, seen = 0, 0, {}
  for i, who in ipairs(whos) do
    if meant(who, jobs[i]) then
      local key = key_of(who)
      all = all + 1
      if who[DEDUPE] == 0 or (not seen[key] and not live(who)) then fresh = fresh + 1 end
      seen[key] = true
    end
  end
  return all, fresh
end

local function check_room(limit, field, meant)
  local all, fresh = count_new(meant)
  if all == 0 then return end
  local count = tonumber(call('HGET', P .. 'backlog', field) or 0)
  local pending = math.min(count, limit + 1)
  if pending + fresh > math.max(limit, pending) then return {'full', math.min(count, COUNT_CAP)} end
end

local function check_limit(limit, functions, tenant)
  if limit < 0 then return end
  return check_room(limit, (functions and 'f' or 'i') .. (tenant and ':' .. tenant or ''), function(who)
    return (who[TYPE] == FUNCTION) == functions and (not tenant or who[TENANT] == tenant)
  end)
end

local function check_key(limit, key)
  local refusal = check_room(limit, 'k:' .. key, function(_, new) return new[NEW_BACKLOG] == key end)
  if refusal then refusal[3] = key end
  return refusal
end

local function full()
  local refusal = check_limit(limits[1], true) or check_limit(limits[2], false)
  for _, tenant in ipairs(tenants) do refusal = refusal or check_limit(limits[3], false, tenant) end
  for i = 1, #keyed, 2 do refusal = refusal or check_key(keyed[i + 1], keyed[i]) end
  return refusal
end

local answer = {'added'}
local function add_answer(id, status, run, hit)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = id, status, run, hit
end

local function add_all()
  local created = now
  for i, new in ipairs(jobs) do
    created = moment_after(created, jobs, i)
    local who = whos[i]
    local twin = who[DEDUPE] == 1 and live(who)
    if not twin then
      insert(new, who, created)
      add_answer(new[NEW_ID], PENDING, 1, 0)
    else
      local row = load(twin)
      add_answer(twin, row[STATUS], row[RUN] + ((row[STATUS] == RUNNING or row[STARTED] > 0) and 1 or 0), 1)
      coalesce(row, new, created)
    end
  end
  flush()
  if #jobs > 0 then notify() end
end
