-- A message for a RAG that only others know goes to that RAG's own list, which they serve, as the next to be taken.
-- KEYS: the gateway's list, the RAG's list. ARGV: message.
-- Answers 0 when another gateway has taken the message over meanwhile.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 1
