-- The hash of a job that has ended goes, with all that is remembered of it.
-- KEYS: open jobs, the job's hash, its ttl marker. ARGV: job id. Answers 0 when the job is open.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 then
  return 0
end
redis.call('DEL', KEYS[3])
redis.call('ZREM', RECENT, ARGV[1])
redis.call('HDEL', RECENT_FIELDS, ARGV[1])
return redis.call('DEL', KEYS[2])
