-- position: an id. Returns {-1} for a job that is not pending, else {claimable rows before it, pending rows}. Keys: job:ID, ready, counts.
local row = load(ARGV[2])
if not row or row[STATUS] ~= PENDING then return {-1} end
local pending = 0
local counts = call('HGETALL', P .. 'counts')
for i = 1, #counts, 2 do
  if string.sub(counts[i], 1, 2) == PENDING .. ':' then pending = pending + counts[i + 1] end
end
return {rank_of(P .. 'ready', score_of(row), member_of(row)), pending}
