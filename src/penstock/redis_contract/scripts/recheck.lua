-- Hashes whose status a producer wrote over after a gateway had written a later one are put right.
-- ARGV: prefix of hashes, seconds to keep one that has ended, how many at most. Answers how many were put right
-- and how many were looked at.
local right, now = 0, now_ms()
local function last_status(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'status' then
      return fields[i + 1]
    end
  end
end
local function put_right(hash, fields)
  local kind, status = redis.call('TYPE', hash).ok, last_status(fields)
  -- A hash that is gone was removed on purpose.
  if kind == 'none' or (kind == 'hash' and redis.call('HGET', hash, 'status') == status) then
    return
  end
  make_room(hash)
  redis.call('HSET', hash, unpack(fields))
  if status == 'done' or status == 'failed' then
    redis.call('EXPIRE', hash, ARGV[2])
  end
  right = right + 1
end
local due = redis.call('ZRANGEBYSCORE', RECENT, '-inf', now, 'LIMIT', 0, ARGV[3])
for _, job in ipairs(due) do
  local said = redis.call('HGET', RECENT_FIELDS, job)
  local last = said and cjson.decode(said)
  if last then
    put_right(ARGV[1] .. job, last.fields)
  end
  if last and CHECKS_MS[last.stage + 1] then
    last.stage = last.stage + 1
    redis.call('HSET', RECENT_FIELDS, job, cjson.encode(last))
    redis.call('ZADD', RECENT, now + CHECKS_MS[last.stage], job)
  else
    redis.call('ZREM', RECENT, job)
    redis.call('HDEL', RECENT_FIELDS, job)
  end
end
return { right, #due }
