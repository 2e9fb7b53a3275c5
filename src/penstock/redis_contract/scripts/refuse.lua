-- Moves a message that cannot become a job to the dead letters.
-- KEYS: the gateway's list, dead letters, open jobs, the job's hash, its ttl marker. ARGV: message, dead letter,
-- job id or '', seconds to keep, when it expires, then fields and values.
-- The hash of a job with this id is not changed.
if redis.call('LREM', KEYS[1], 1, ARGV[1]) == 0 then
  return 0
end
add_dead_letter(KEYS[2], ARGV[2])
if ARGV[3] ~= '' and unused(KEYS[3], KEYS[4], ARGV[3]) then
  redis.call('HSET', KEYS[4], unpack(ARGV, 6))
  redis.call('EXPIRE', KEYS[4], ARGV[4])
  redis.call('SET', KEYS[5], ARGV[5], 'EX', ARGV[4])
  remember(ARGV[3], KEYS[4])
end
return 1
