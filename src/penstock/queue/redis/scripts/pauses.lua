-- Pauses; the rules are in rules/pauses.py. Needs keys.lua. Keys: pauses.

-- Lists of tenant, collection, phase, and the position of the resume in the claim order (score, member).
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

-- Whether the release of this pause has passed a position.
local function has_passed(pause, score, member)
  if pause[3] ~= PHASE_RELEASING or pause[5] == '' then return false end
  local mine, other = tonumber(pause[4]), tonumber(score)
  return other < mine or other == mine and not precedes(pause[5], member)
end

-- The scopes whose rows a claim holds back, whether everything is paused, and whether a resume is active.
local function active_pauses()
  local held, all_paused, resuming = {}, false, false
  for _, pause in ipairs(pauses()) do
    if pause[1] == '*' and pause[2] == '*' then all_paused = true end
    if pause[3] ~= PHASE_PAUSED then resuming = true end
    if pause[3] ~= PHASE_RELEASING then held[#held + 1] = pause end
  end
  return held, all_paused, resuming
end
