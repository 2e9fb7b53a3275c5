-- expire_results: limit. Removes results whose time is over; see rules/retention.py. Returns the number of rows looked at.
-- Keys: results, job:ID.
allow_without_memory()
local due = call('ZRANGEBYSCORE', P .. 'results', '-inf', number(now), 'LIMIT', 0, cmsgpack.unpack(ARGV[2]))
for _, id in ipairs(due) do
  local row = load(id)
  -- The row may be gone, or have been requeued since.
  if row and row.ttl and ended(row) and row[FINISHED] + row.ttl * COUNT_CAP <= now then call('HDEL', row.key, 'res') end
  call('ZREM', P .. 'results', id)
end
return #due
