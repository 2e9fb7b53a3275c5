-- Takes messages of RAGs that no gateway served for too long; the gateway refuses them.
-- KEYS: when each RAG was last served, the gateway's list. ARGV: milliseconds a RAG may be away, prefix of waiting
-- lists, limit. Returns the count.
local moved, limit, now = 0, tonumber(ARGV[3]), now_ms()
local rows = redis.call('HGETALL', KEYS[1])
for i = 1, #rows, 2 do
  if now - (tonumber(rows[i + 1]) or 0) > tonumber(ARGV[1]) then
    local from = ARGV[2] .. rows[i]
    while moved < limit and redis.call('LMOVE', from, KEYS[2], 'RIGHT', 'LEFT') do
      moved = moved + 1
    end
    if redis.call('EXISTS', from) == 0 then
      redis.call('HDEL', KEYS[1], rows[i])
    end
  end
end
return moved
