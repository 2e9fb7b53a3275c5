-- busy: whether anything can be claimed, runs, is due, is in back-off or, asked for 'documents', waits for other than
-- its children: 1 or 0.
-- Keys: pauses, ready, lease, waiting, later, backoff and those of rows that wait.
local _, shut = in_force()
if not shut and call('ZCARD', P .. 'ready') > 0 then return 1 end
-- One entry is there always, see format.py.
if call('ZCARD', P .. 'lease') > 1 then return 1 end
if call('ZCARD', P .. 'backoff') > 0 then return 1 end
if #call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, 1) > 0 then return 1 end
if ARGV[2] == '' then return 0 end
local at, ids = 0, nil
repeat
  ids = call('ZRANGE', P .. 'waiting', at, at + 999)
  for _, id in ipairs(ids) do
    if load(id)[WAITING_FOR] ~= 'children' then return 1 end
  end
  at = at + 1000
until #ids < 1000
return 0
