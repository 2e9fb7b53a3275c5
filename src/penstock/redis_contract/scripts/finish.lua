-- Writes the final hash of a job with its expiry, and a dead letter after a failure.
-- KEYS: open jobs, the job's hash, its ttl marker, dead letters, jobs of its file. ARGV: gateway, job id, seconds
-- to keep, when it expires, dead letter or '', then fields and values. Returns 0 when another gateway has taken the
-- job over.
if not own(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[2], unpack(ARGV, 6))
redis.call('EXPIRE', KEYS[2], ARGV[3])
redis.call('SET', KEYS[3], ARGV[4], 'EX', ARGV[3])
if ARGV[5] ~= '' then
  add_dead_letter(KEYS[4], ARGV[5])
end
redis.call('HDEL', KEYS[1], ARGV[2])
redis.call('SREM', KEYS[5], ARGV[2])
remember(ARGV[2], KEYS[2])
return 1
