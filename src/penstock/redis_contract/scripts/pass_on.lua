-- Moves a message for a RAG of other gateways to a list that only they take from, so that it blocks no other message.
-- KEYS: the gateway's list, when each RAG was last served, the RAG's waiting list, open jobs, the job's hash.
-- ARGV: message, RAG id, milliseconds a RAG may be away, job id, then fields and values.
-- Returns 0 when no gateway served the RAG for so long, -1 when another gateway has taken the message over.
local at = tonumber(redis.call('HGET', KEYS[2], ARGV[2]) or '') or 0
if now_ms() - at > tonumber(ARGV[3]) then
  return 0
end
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return -1
end
redis.call('LPUSH', KEYS[3], ARGV[1])
if unused(KEYS[4], KEYS[5], ARGV[4]) then
  redis.call('HSET', KEYS[5], unpack(ARGV, 5))
  redis.call('PERSIST', KEYS[5])
  remember(ARGV[4], KEYS[5])
end
return 1
