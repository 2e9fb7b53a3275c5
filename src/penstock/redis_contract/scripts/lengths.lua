-- The length of each list; what is no list is answered with its type. KEYS: the lists.
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = is_list(key) and redis.call('LLEN', key) or redis.call('TYPE', key).ok
end
return found
