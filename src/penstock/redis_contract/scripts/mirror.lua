-- KEYS: open jobs, the job's hash. ARGV: gateway, job id, then fields and values.
-- Answers 0 when the job is another gateway's by now.
if not own(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[2], unpack(ARGV, 3))
-- A job that was put back after its end must not lose its hash while it runs.
redis.call('PERSIST', KEYS[2])
if redis.call('HEXISTS', RECENT_FIELDS, ARGV[2]) == 1 then
  remember(ARGV[2], KEYS[2])
end
return 1
