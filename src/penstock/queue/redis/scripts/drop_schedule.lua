-- drop_schedule: field. Returns the number of removed schedules. Keys: schedules, next.
local field = cmsgpack.unpack(ARGV[2])
call('ZREM', P .. 'next', field)
return call('HDEL', P .. 'schedules', field)
