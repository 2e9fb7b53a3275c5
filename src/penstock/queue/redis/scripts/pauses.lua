-- What is paused. Needs keys.lua. Keys: pauses.

local function pauses()
  local scopes = call('SMEMBERS', P .. 'pauses')
  for i, scope in ipairs(scopes) do
    local tenant, collection = string.match(scope, '^(.-)\n(.*)$')
    scopes[i] = {tenant, collection}
  end
  return scopes
end

local function covered(scopes, tenant, collection)
  for _, scope in ipairs(scopes) do
    if (scope[1] == '*' or scope[1] == tenant) and (scope[2] == '*' or scope[2] == collection) then
      return true
    end
  end
  return false
end
