-- KEYS: gateways, when each RAG was last served. ARGV: gateway, what it says of itself as JSON, 1 when it leaves.
local said = cjson.decode(ARGV[2])
local now = now_ms()
said.at = ARGV[3] == '1' and 0 or now
for _, rag in ipairs(type(said.rags) == 'table' and said.rags or {}) do
  redis.call('HSET', KEYS[2], rag, now)
end
redis.call('HSET', KEYS[1], ARGV[1], cjson.encode(said))
return said.at
