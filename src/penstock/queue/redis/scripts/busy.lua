-- busy: 1 if any row is claimable, waits for a limit, runs, due or in back-off; with 'documents' also if one waits for something
-- other than its children. Else 0.
-- Keys: pauses, ready, limiters, lease, waiting, later, backoff and those of waiting rows.
local _, all_paused = active_pauses()
if not all_paused and call('ZCARD', P .. 'ready') + call('ZCARD', P .. 'limiters') > 0 then return 1 end
-- One entry always exists, see server_check.py.
if call('ZCARD', P .. 'lease') > 1 then return 1 end
if call('ZCARD', P .. 'backoff') > 0 then return 1 end
if #call('ZRANGEBYSCORE', P .. 'later', '-inf', number(now), 'LIMIT', 0, 1) > 0 then return 1 end
if ARGV[2] == '' then return 0 end
local at, ids = 0, nil
repeat
  ids = call('ZRANGE', P .. 'waiting', at, at + 999)
  for _, id in ipairs(ids) do
    if load(id)[WAITING_FOR] ~= CHILDREN then return 1 end
  end
  at = at + 1000
until #ids < 1000
return 0
