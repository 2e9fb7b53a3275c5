-- Whether a gateway that lives says that it serves a RAG. KEYS: gateways. ARGV: RAG id, silence in milliseconds.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, said in ipairs(redis.call('HVALS', KEYS[1])) do
  local read, found = pcall(cjson.decode, said)
  if read and type(found) == 'table' and type(found.rags) == 'table'
      and now - (tonumber(found.at) or 0) <= tonumber(ARGV[2]) then
    for _, rag in ipairs(found.rags) do
      if rag == ARGV[1] then
        return 1
      end
    end
  end
end
return 0
