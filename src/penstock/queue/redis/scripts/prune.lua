-- prune: roots as lists of id, status and the time before which it must have ended; limit. Deletes trees, descendants
-- first, and skips trees with a live row. Returns the number of deleted rows.
-- Keys: job:ID, all failed cancelled, ended:STATUS, tree:ID, kids:RUN:ID, names:RUN:ID, counts.
local request = cmsgpack.unpack(ARGV[2])
local limit, gone = request[2], 0

local function delete(id)
  local row = load(id)
  call('DEL', row.key)
  call('ZREM', P .. 'all', id)
  if HOMES[row[STATUS]] then call('ZREM', P .. HOMES[row[STATUS]], id) end
  call('HINCRBY', P .. 'counts', class_of(row, row), -1)
  if row.kin then
    call('ZREM', P .. 'kids:' .. row.kin[PARENT_RUN] .. ':' .. row.kin[PARENT], id)
    call('HDEL', P .. 'names:' .. row.kin[PARENT_RUN] .. ':' .. row.kin[PARENT], row.who[KEY])
    call('ZREM', P .. 'tree:' .. row.kin[ROOT], id)
  else
    call('ZREM', P .. 'ended:' .. STATUSES[row[STATUS]], id)
  end
  gone = gone + 1
end

for _, root in ipairs(request[1]) do
  if gone >= limit then break end
  local row, tree = load(root[1]), P .. 'tree:' .. root[1]
  if row and row[STATUS] == root[2] and row[FINISHED] < root[3] and call('ZCOUNT', tree, 0, 0) == 0 then
    local descendants = call('ZRANGE', tree, 0, limit - gone - 1)
    for _, id in ipairs(descendants) do delete(id) end
    if gone < limit then delete(root[1]) end
  end
end
return gone
