-- Returns the length of each list, or the type of a key that is no list. KEYS: the lists.
local found = {}
for i, key in ipairs(KEYS) do
  found[i] = is_list(key) and redis.call('LLEN', key) or redis.call('TYPE', key).ok
end
return found
