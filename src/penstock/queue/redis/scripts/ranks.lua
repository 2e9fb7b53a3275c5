-- Positions in a zset in claim order. Needs rows.lua.

-- The number of members before (score, member), which need not be in the zset.
local function rank_of(key, score, member)
  local low = call('ZCOUNT', key, '-inf', '(' .. score)
  local high = low + call('ZCOUNT', key, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if precedes(call('ZRANGE', key, middle, middle)[1], member) then low = middle + 1 else high = middle end
  end
  return low
end
