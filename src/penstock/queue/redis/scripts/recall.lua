-- recall: a key. Holds unclaimed rows again, after a change of their limit; see recall in rules/limits.py. Returns 1 if
-- there may be more.
local key, count, at, ids = cmsgpack.unpack(ARGV[2]), 0, 0, nil
repeat
  ids = call('ZRANGE', P .. 'admitted:' .. key, at, at + ADMITTED_AT_ONCE - 1)
  for _, id in ipairs(ids) do
    local row = load(id)
    if row[STATUS] == PENDING and count < ADMITTED_AT_ONCE then
      local was = copy(row)
      row[HELD], row[RUN_AT], row[UPDATED], row[TURN], row.go = LIMITED, 0, now, math.min(row[TURN], 0), nil
      set(row, 'go', false)
      save(row, was)
      count = count + 1
    else
      at = at + 1
    end
  end
until #ids < ADMITTED_AT_ONCE or count == ADMITTED_AT_ONCE
return count == ADMITTED_AT_ONCE and 1 or 0
