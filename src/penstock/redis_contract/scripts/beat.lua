-- KEYS: gateways. ARGV: gateway, what it says of itself as JSON, 1 when it leaves.
-- The time is the server's: gateways on several hosts have no clock in common.
local said = cjson.decode(ARGV[2])
local time = redis.call('TIME')
said.at = ARGV[3] == '1' and 0 or time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(said))
return said.at
