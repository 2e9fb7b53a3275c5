-- due_schedules: number of schedules. Returns those whose time has come, the earliest first. Keys: schedules, next.
local found = {}
for _, field in ipairs(call('ZRANGEBYSCORE', P .. 'next', '-inf', now, 'LIMIT', 0, cmsgpack.unpack(ARGV[2]))) do
  found[#found + 1] = call('HGET', P .. 'schedules', field)
end
return found
