-- Reads some hashes of jobs. ARGV: cursor, prefix, number of keys to scan, then fields.
-- Returns the next cursor, then for each hash the job id and a list of its values.
local found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2] .. '*', 'COUNT', ARGV[3])
local answer = { found[1] }
for _, key in ipairs(found[2]) do
  if redis.call('TYPE', key).ok == 'hash' then
    answer[#answer + 1] = string.sub(key, #ARGV[2] + 1)
    answer[#answer + 1] = redis.call('HMGET', key, unpack(ARGV, 4))
  end
end
return answer
