-- Whether this gateway owns a job. KEYS: open jobs, the job's hash. ARGV: gateway, job id. Returns 0 when another
-- gateway has taken the job over, or its end was written.
return own(KEYS[1], KEYS[2], ARGV[1], ARGV[2]) and 1 or 0
