-- KEYS: open jobs, the job's hash. ARGV: gateway, job id. Answers 0 when the job is another gateway's by now, or told.
return own(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) and 1 or 0
