-- put_schedule: field, schedule as JSON, next time in microseconds ('' = none), version that it replaces (0 = none).
-- Returns 1, or 0 if another version is stored. Keys: schedules, next.
local request = cmsgpack.unpack(ARGV[2])
local stored = call('HGET', P .. 'schedules', request[1])
local version = stored and cjson.decode(stored).version or 0
if version ~= request[4] then return 0 end
call('HSET', P .. 'schedules', request[1], request[2])
if request[3] == '' then
  call('ZREM', P .. 'next', request[1])
else
  call('ZADD', P .. 'next', request[3], request[1])
end
return 1
