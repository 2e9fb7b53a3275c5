-- Removes the hash of an ended job, with its ttl marker and recent fields.
-- KEYS: open jobs, the job's hash, its ttl marker. ARGV: job id. Returns 0 when the job is open.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 0
end
redis.call('DEL', KEYS[3])
redis.call('ZREM', RECENT, ARGV[1])
redis.call('HDEL', RECENT_FIELDS, ARGV[1])
return redis.call('DEL', KEYS[2])
