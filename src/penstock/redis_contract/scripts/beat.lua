-- Records a heartbeat. KEYS: gateways, when each RAG was last served. ARGV: gateway, heartbeat as JSON, 1 when the
-- gateway stops.
local beat = cjson.decode(ARGV[2])
local now = now_ms()
beat.at = ARGV[3] == '1' and 0 or now
for _, rag in ipairs(type(beat.rags) == 'table' and beat.rags or {}) do
  redis.call('HSET', KEYS[2], rag, now)
end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(beat))
return beat.at
