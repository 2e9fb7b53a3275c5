-- start: id, worker, lease. Starts one job (transitions.started). Returns its claim number, or 0 if it cannot start.
local request = cmsgpack.unpack(ARGV[2])
local row = load(request[1])
if not row or row[STATUS] ~= PENDING or row[HELD] == PAUSED or row[HELD] == DEPENDENT then return 0 end
if row.limit and (row[HELD] ~= FREE or not row.go) then return 0 end
local paused, all_paused = active_pauses()
if all_paused or covered(paused, row.who[TENANT], row.who[COLLECTION]) then return 0 end
local lock = lock_of(row)
if lock and row[LOCKED] == 0 and call('HGET', P .. 'locks', lock) then return 0 end
local was = copy(row)
row[STATUS], row[HELD], row[RUN_AT], row[LOCKED] = RUNNING, FREE, 0, lock and 1 or 0
row[WORKER], row[LEASE], row[CLAIM] = request[2], now + request[3], row[CLAIM] + 1
row[STARTED], row[UPDATED] = now, now
save(row, was)
return row[CLAIM]
