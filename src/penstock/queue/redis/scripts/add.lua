-- add: [limit of functions, of indexing jobs, of one tenant's (-1 = none)], tenants in order, new jobs.
-- Answers {'added', id, status, run, hit, ...}, {'full', pending} or {'taken', id}; of the last two, nothing is
-- written. Keys: all but lease, pauses, workers.

local asked = cmsgpack.unpack(ARGV[2])
local limits, tenants, jobs = asked[1], asked[2], asked[3]
local whos, taken = {}, {}

for i, new in ipairs(jobs) do
  local id = new[NEW_ID]
  if taken[id] or call('EXISTS', P .. 'job:' .. id) == 1 then return {'taken', id} end
  taken[id] = true
  whos[i] = {struct.unpack(WHO, new[NEW_WHO])}
end

local function live(who)
  return call('HGET', P .. 'keys', key_of(who))
end

-- Those of one class (and tenant), and how many of them would be rows of their own: a request that joins a live
-- row is answered even when the queue is full.
local function wanted(functions, tenant)
  local all, fresh, seen = 0, 0, {}
  for _, who in ipairs(whos) do
    if (who[TYPE] == 'function') == functions and (not tenant or who[TENANT] == tenant) then
      local key = key_of(who)
      all = all + 1
      if who[DEDUPE] == 0 or (not seen[key] and not live(who)) then fresh = fresh + 1 end
      seen[key] = true
    end
  end
  return all, fresh
end

local function overfull(limit, functions, tenant)
  if limit < 0 then return end
  local all, fresh = wanted(functions, tenant)
  if all == 0 then return end
  local field = (functions and 'f' or 'i') .. (tenant and ':' .. tenant or '')
  local count = tonumber(call('HGET', P .. 'backlog', field) or 0)
  local pending = math.min(count, limit + 1)
  if pending + fresh > math.max(limit, pending) then return {'full', math.min(count, 1000000)} end
end

local refusal = overfull(limits[1], true) or overfull(limits[2], false)
for _, tenant in ipairs(tenants) do refusal = refusal or overfull(limits[3], false, tenant) end
if refusal then return refusal end

local answer = {'added'}
local function tell(id, status, run, hit)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = id, status, run, hit
end

local created = now
for i, new in ipairs(jobs) do
  created = moment_after(created, jobs, i)
  local who = whos[i]
  local twin = who[DEDUPE] == 1 and live(who)
  if not twin then
    insert(new, who, created)
    tell(new[NEW_ID], PENDING, 1, 0)
  else
    local row = load(twin)
    tell(twin, row[STATUS], row[RUN] + ((row[STATUS] == RUNNING or row[STARTED] > 0) and 1 or 0), 1)
    coalesce(row, new, created)
  end
end
flush()
if #jobs > 0 then ring() end
return answer
