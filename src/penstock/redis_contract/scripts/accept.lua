-- Acknowledges a message whose job is queued: removes it, writes its hash, and makes this gateway the job's owner.
-- KEYS: the gateway's list, open jobs, the job's hash, jobs of its file. ARGV: message, gateway, job id, 1 when
-- an end in the hash is out of date, seconds to keep, then fields and values.
-- Returns 0 when another gateway has taken the message over.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
remove_other_type(KEYS[3])
local status = redis.call('HGET', KEYS[3], 'status')
if ARGV[4] ~= '1' and (status == DONE or status == FAILED) then
  -- Sent a second time after the job ended: the hash stays as it is.
  remember(ARGV[3], KEYS[3])
  return 1
end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[2])
redis.call('PERSIST', KEYS[3])
redis.call('SADD', KEYS[4], ARGV[3])
redis.call('EXPIRE', KEYS[4], ARGV[5])
if status ~= PROCESSING then
  redis.call('HSET', KEYS[3], unpack(ARGV, 6))
end
remember(ARGV[3], KEYS[3])
return 1
