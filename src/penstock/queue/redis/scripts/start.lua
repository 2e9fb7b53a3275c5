-- start: id, worker, lease. transitions.started of one job; answers its claim number, or 0 when it cannot start.
local asked = cmsgpack.unpack(ARGV[2])
if call('HEXISTS', P .. 'pauses', '*\n*') == 1 then return 0 end
local row = load(asked[1])
if not row or row[STATUS] ~= PENDING or row[HELD] == PAUSED then return 0 end
local lock = lock_of(row)
if lock and row[LOCKED] == 0 and call('HGET', P .. 'locks', lock) then return 0 end
local was = copy(row)
row[STATUS], row[HELD], row[RUN_AT], row[LOCKED] = RUNNING, FREE, 0, lock and 1 or 0
row[WORKER], row[LEASE], row[CLAIM] = asked[2], now + asked[3], row[CLAIM] + 1
row[STARTED], row[UPDATED] = now, now
save(row, was)
return row[CLAIM]
