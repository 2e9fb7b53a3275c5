-- Moves messages into the gateway's own lists, from the lists in the order given.
-- KEYS: gateways, then pairs of a list and its target. ARGV: limit, maximum bytes, gateway.
-- Returns pairs of the target's number and the message. A message over the limit never leaves the server: an entry with
-- its size, list and beginning takes its place.
local taken = {}
-- A gateway that counts as dead takes nothing before its next heartbeat: no other gateway would look for it.
if redis.call('HEXISTS', KEYS[1], ARGV[3]) == 0 then
  return taken
end
local limit, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 2, #KEYS, 2 do
  -- A key of another type is reported by the gateway, and the other lists are served.
  while is_list(KEYS[i]) and #taken / 2 < limit do
    local found = redis.call('LINDEX', KEYS[i], -1)
    if not found then
      break
    end
    if #found > longest then
      local head = string.sub(found, 1, HEAD_BYTES)
      found = table.concat({ '\0' .. OVERSIZED, #found, KEYS[i], head }, '\n')
      redis.call('LPUSH', KEYS[i + 1], found)
      redis.call('RPOP', KEYS[i])
    else
      redis.call('LMOVE', KEYS[i], KEYS[i + 1], 'RIGHT', 'LEFT')
    end
    taken[#taken + 1] = (i - 2) / 2
    taken[#taken + 1] = found
  end
end
return taken
