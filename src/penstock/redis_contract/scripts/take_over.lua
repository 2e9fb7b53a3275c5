-- Takes over the messages and jobs of dead gateways of the same group.
-- KEYS: gateways, open jobs. ARGV: gateway, group, silence in milliseconds, prefix of processing lists, then the
-- priorities. A group is the gateways of one queue: jobs of another group are in another queue.
-- Returns the numbers of messages and jobs.
local function flat(key)
  local rows, found = redis.call('HGETALL', key), {}
  for i = 1, #rows, 2 do
    found[rows[i]] = rows[i + 1]
  end
  return found
end
local function in_group(gateway)
  return string.sub(gateway, 1, #ARGV[2] + 1) == ARGV[2] .. '.'
end
-- A value that is no heartbeat counts as silence.
local function beat_at(beat)
  local read, found = pcall(cjson.decode, beat)
  return read and type(found) == 'table' and tonumber(found.at) or 0
end
local now = now_ms()
local alive, messages, jobs = { [ARGV[1]] = true }, 0, 0
for gateway, beat in pairs(flat(KEYS[1])) do
  if now - beat_at(beat) <= tonumber(ARGV[3]) then
    alive[gateway] = true
  elseif gateway ~= ARGV[1] and in_group(gateway) then
    for i = 5, #ARGV do
      local from, to = ARGV[4] .. gateway .. ':' .. ARGV[i], ARGV[4] .. ARGV[1] .. ':' .. ARGV[i]
      while redis.call('LMOVE', from, to, 'RIGHT', 'LEFT') do
        messages = messages + 1
      end
    end
    redis.call('HDEL', KEYS[1], gateway)
  end
end
for job, gateway in pairs(flat(KEYS[2])) do
  if not alive[gateway] and in_group(gateway) then
    redis.call('HSET', KEYS[2], job, ARGV[1])
    jobs = jobs + 1
  end
end
return { messages, jobs }
