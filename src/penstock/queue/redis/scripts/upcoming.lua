-- upcoming: item type or '', first rank, limit, whether to read due rows. Rows that a claim would consider, in claim
-- order: the first of each lock, without rows whose lock is held. Returns {rows read, id, lock, tenant,
-- collection, ...}.
local request = cmsgpack.unpack(ARGV[2])
local kind, first, limit, due = request[1], request[2], request[3], request[4]
local found
if due then
  found = call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, limit)
else
  found = call('ZRANGE', P .. 'ready', first, first + limit - 1)
end
local answer, seen = {#found}, {}
for _, member in ipairs(found) do
  local id = due and member or id_in(member)
  local raw = call('HGET', P .. 'job:' .. id, 'id')
  if raw then
    local who = {struct.unpack(WHO, raw)}
    local lock = who[LOCK]
    local holder = lock ~= '' and not seen[lock] and call('HGET', P .. 'locks', lock)
    if (kind == '' or who[TYPE] == kind) and not seen[lock] and (not holder or holder == id) then
      if lock ~= '' then seen[lock] = true end
      local n = #answer
      answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = id, who[LOCK], who[TENANT], who[COLLECTION]
    end
  end
end
return answer
