-- Moves messages into the gateway's own lists, from the lists in the order given.
-- KEYS: gateways, dead letters, then pairs of a list and where to. ARGV: how many, longest bytes, the time as
-- text, gateway.
-- Answers pairs of the destination's number and the message. What is too long for a message never leaves the
-- server: its beginning goes to the dead letters.
local taken = {}
-- One that was taken for dead says so by its next beat. What it took before that, nobody would look for.
if redis.call('HEXISTS', KEYS[1], ARGV[4]) == 0 then
  return taken
end
local most, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
for i = 3, #KEYS, 2 do
  -- Something else in the place of a list is reported, and the other lists are served.
  while is_list(KEYS[i]) and #taken / 2 < most do
    local found = redis.call('LINDEX', KEYS[i], -1)
    if not found then
      break
    end
    if #found > longest then
      redis.call('RPOP', KEYS[i])
      local head = string.gsub(string.sub(found, 1, 1000), '[^ -~]', '?')
      bury(KEYS[2], cjson.encode({
        code = 'ERR_PAYLOAD_TOO_LARGE',
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
