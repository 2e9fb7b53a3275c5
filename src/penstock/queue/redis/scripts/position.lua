-- position: an id. Returns {-1} for a job that is not pending, else {claimable
-- rows before it, pending rows, 1 for a request, pending requests, requests before it}. Keys: job:ID, ready, counts,
-- backlog.
local row = load(ARGV[2])
if not row or row[STATUS] ~= PENDING then return {-1} end
local pending = 0
local counts = call('HGETALL', P .. 'counts')
for i = 1, #counts, 2 do
  if string.sub(counts[i], 1, 2) == PENDING .. ':' then pending = pending + counts[i + 1] end
end
local requests = tonumber(call('HGET', P .. 'backlog', 'i') or 0)
local rank = rank_of(P .. 'ready', score_of(row), member_of(row))
local is_request = not row.kin and row.who[TYPE] ~= FUNCTION
local ahead = rank
if is_request and rank > 0 and pending ~= requests then
  ahead = math.min(rank, requests - 1)
  if rank <= POSITION_CAP then
    ahead = 0
    for _, member in ipairs(call('ZRANGE', P .. 'ready', 0, rank - 1)) do
      local other = load(id_in(member))
      if other and not other.kin and other.who[TYPE] ~= FUNCTION then ahead = ahead + 1 end
    end
  end
end
return {rank, pending, is_request and 1 or 0, requests, ahead}
