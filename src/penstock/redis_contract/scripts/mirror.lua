-- Writes the hash of a job. KEYS: open jobs, the job's hash. ARGV: gateway, job id, then fields and values.
-- Returns 0 when another gateway has taken the job over.
if not own(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
-- The hash of a requeued job must not expire while the job runs.
redis.call('PERSIST', KEYS[2])
if redis.call('HEXISTS', RECENT_FIELDS, ARGV[2]) == 1 then
  remember(ARGV[2], KEYS[2])
end
return 1
