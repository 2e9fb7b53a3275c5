-- Corrects hashes in which a producer overwrote a later status of a gateway.
-- ARGV: prefix of hashes, seconds to keep the hash of an ended job, limit. Returns the numbers of corrected and of
-- checked hashes.
local corrected, now = 0, now_ms()
local function last_status(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'status' then
      return fields[i + 1]
    end
  end
end
local function correct(hash, fields)
  local key_type, status = redis.call('TYPE', hash).ok, last_status(fields)
  -- A missing hash was removed on purpose.
  if key_type == 'none' or (key_type == 'hash' and redis.call('HGET', hash, 'status') == status) then
    return
  end
  remove_other_type(hash)
  redis.call('HSET', hash, unpack(fields))
  if status == DONE or status == FAILED then
    redis.call('EXPIRE', hash, ARGV[2])
  end
  corrected = corrected + 1
end
local due = redis.call('ZRANGEBYSCORE', RECENT, '-inf', now, 'LIMIT', 0, ARGV[3])
for _, job in ipairs(due) do
  local beat = redis.call('HGET', RECENT_FIELDS, job)
  local last = beat and cjson.decode(beat)
  if last then
    correct(ARGV[1] .. job, last.fields)
  end
  if last and RECHECK_MS[last.stage + 1] then
    last.stage = last.stage + 1
    redis.call('HSET', RECENT_FIELDS, job, cjson.encode(last))
    redis.call('ZADD', RECENT, now + RECHECK_MS[last.stage], job)
  else
    redis.call('ZREM', RECENT, job)
    redis.call('HDEL', RECENT_FIELDS, job)
  end
end
return { corrected, #due }
