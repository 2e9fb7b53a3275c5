-- What is paused, as pauses.py has it. Needs keys.lua. Keys: pauses.

-- Lists of tenant, collection, phase, and the place in the claim order (score, member) that a resume has come to.
local function pauses()
  local raw, known = call('HGETALL', P .. 'pauses'), {}
  for i = 1, #raw, 2 do
    local tenant, collection = string.match(raw[i], '^(.-)\n(.*)$')
    local state = cmsgpack.unpack(raw[i + 1])
    known[#known + 1] = {tenant, collection, state[1], state[2] or '', state[3] or ''}
  end
  return known
end

local function covers(pause, tenant, collection)
  if pause[1] == '*' and pause[2] == '*' then return false end
  return (pause[1] == '*' or pause[1] == tenant) and (pause[2] == '*' or pause[2] == collection)
end

local function covered(scopes, tenant, collection)
  for _, scope in ipairs(scopes) do
    if covers(scope, tenant, collection) then return true end
  end
  return false
end

-- The release of this pause has come by a place.
local function passed(pause, score, member)
  if pause[3] ~= 'releasing' or pause[5] == '' then return false end
  local mine, other = tonumber(pause[4]), tonumber(score)
  return other < mine or other == mine and not precedes(pause[5], member)
end

-- Scopes whose rows a claim holds back, whether everything is paused, whether a resume is under way.
local function in_force()
  local held, shut, resuming = {}, false, false
  for _, pause in ipairs(pauses()) do
    if pause[1] == '*' and pause[2] == '*' then shut = true end
    if pause[3] ~= 'paused' then resuming = true end
    if pause[3] ~= 'releasing' then held[#held + 1] = pause end
  end
  return held, shut, resuming
end
