-- The job is in the queue: the message goes, its hash says so, and this gateway mirrors the job from now on.
-- KEYS: the gateway's list, open jobs, the job's hash, jobs of its file. ARGV: message, gateway, job id, 1 when
-- the job has not ended, whatever its hash says, seconds to keep, then fields and values.
-- Answers 0 when another gateway has taken the message over meanwhile.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
make_room(KEYS[3])
local status = redis.call('HGET', KEYS[3], 'status')
if ARGV[4] ~= '1' and (status == 'done' or status == 'failed') then
  -- Sent a second time after its end: the hash stays as it is.
  remember(ARGV[3], KEYS[3])
  return 1
end
redis.call('HSET', KEYS[2], ARGV[3], ARGV[2])
redis.call('PERSIST', KEYS[3])
redis.call('SADD', KEYS[4], ARGV[3])
redis.call('EXPIRE', KEYS[4], ARGV[5])
if status ~= 'processing' then
  redis.call('HSET', KEYS[3], unpack(ARGV, 6))
end
remember(ARGV[3], KEYS[3])
return 1
