-- unresolved: the last id seen, and the number of ids. See unresolved in rules/dependencies.py. Returns {last id or '',
-- ended or deleted jobs that others are held for, ...}. Keys: awaited, job:ID.
local request = cmsgpack.unpack(ARGV[2])
local batch = call('ZRANGEBYLEX', P .. 'awaited', request[1] == '' and '-' or '(' .. request[1], '+', 'LIMIT', 0, request[2])
local answer = {#batch == request[2] and batch[#batch] or ''}
for _, id in ipairs(batch) do
  local row = load(id)
  if not row or ended(row) then answer[#answer + 1] = id end
end
return answer
