-- forget_workers: pairs of worker and report as JSON. Removes each report that is still the same. Returns their number.
-- Keys: workers.
local gone = 0
for _, pair in ipairs(cmsgpack.unpack(ARGV[2])) do
  if call('HGET', P .. 'workers', pair[1]) == pair[2] then gone = gone + call('HDEL', P .. 'workers', pair[1]) end
end
return gone
