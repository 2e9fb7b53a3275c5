-- Whether no job has this id. KEYS: open jobs, the job's hash. ARGV: job id. Returns 0 when a job of this id is open or has ended.
return unused(KEYS[1], KEYS[2], ARGV[1]) and 1 or 0
