-- Moves messages into the gateway's own lists, from the lists in the order given.
-- KEYS: gateways, dead letters, then pairs of a list and its target. ARGV: limit, maximum bytes, the time as
-- text, gateway.
-- Returns pairs of the target's number and the message. A message over the limit never leaves the server: its
-- beginning goes to the dead letters.
local taken = {}
-- A gateway that counts as dead takes nothing before its next heartbeat: no other gateway would look for it.
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 then
  return taken
end
local limit, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #KEYS, 2 do
  -- A key of another type is reported by the gateway, and the other lists are served.
  while is_list(KEYS[i]) and #taken / 2 < limit do
    local found = redis.call('LINDEX', KEYS[i], -1)
    if not found then
      break
    end
    if #found > longest then
      redis.call('RPOP', KEYS[i])
      local head = string.gsub(string.sub(found, 1, 1000), '[^ -~]', '?')
      add_dead_letter(KEYS[2], cjson.encode({
        code = TOO_LARGE,
        reason = 'the message has ' .. #found .. ' bytes, the limit is ' .. longest,
        at = ARGV[3],
        list = KEYS[i],
        message_bytes = #found,
        message_beginning = head,
      }))
    else
      redis.call('LMOVE', KEYS[i], KEYS[i + 1], 'RIGHT', 'LEFT')
      taken[#taken + 1] = (i - 3) / 2
      taken[#taken + 1] = found
    end
  end
end
return taken
