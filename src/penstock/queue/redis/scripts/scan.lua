-- scan: filters by name, grouping columns ('' = return rows), ids, limit. Finds the matching rows among the ids.
-- Returns {id, values of FIELDS, ...} or {group, count, ...}, where a group is its values as MessagePack.
-- Reads job:ID only.
local request = cmsgpack.unpack(ARGV[2])
local filters, by, ids, limit = request[1], request[2], request[3], request[4]
local fields = FIELDS

local COLUMNS = {
  status = function(row) return row[STATUS] end,
  held = function(row) return row[HELD] end,
  priority = function(row) return row[PRIORITY] end,
  op = function(row) return row[OP] end,
  worker_id = function(row) return row[WORKER] end,
  waiting_for = function(row) return row[WAITING_FOR] end,
  item_type = function(row) return row.who[TYPE] end,
  tenant_id = function(row) return row.who[TENANT] end,
  collection = function(row) return row.who[COLLECTION] end,
  branch = function(row) return row.who[BRANCH] end,
  limit_key = function(row) return row.limit or '' end,
  lock_key = function(row) return row.who[LOCK] end,
  idempotency_key = function(row) return row.who[KEY] end,
  parent_id = function(row) return row.kin and row.kin[PARENT] or '' end,
  root_id = function(row) return root_of(row) end,
  error_code = function(row) return row[CODE] end,
  waiting = function(row) return row[STATUS] == RUNNING and not (row[LEASE] > 0) end,
  top_level = function(row) return not row.kin end,
}

local function has_text(row, texts)
  local raw = call('HMGET', row.key, 'err', 'body')
  return string.find(string.lower(row.id), texts[1], 1, true)
    or (raw[1] and string.find(string.lower(raw[1]), texts[1], 1, true))
    or (raw[2] and string.find(string.lower(raw[2]), texts[2], 1, true))
end

local function matches(row)
  for name, value in pairs(filters) do
    if name == 'statuses' then
      if not value[row[STATUS]] then return false end
    elseif name == 'text' then
      if not has_text(row, value) then return false end
    elseif COLUMNS[name](row) ~= value then
      return false
    end
  end
  return true
end

local found, groups = {}, {}
for _, id in ipairs(ids) do
  local row = load(id)
  if row and matches(row) then
    if by == '' then
      found[#found + 1] = id
      found[#found + 1] = call('HMGET', row.key, unpack(fields))
      if #found == 2 * limit then break end
    else
      local values = {}
      for i, name in ipairs(by) do values[i] = COLUMNS[name](row) end
      local group = cmsgpack.pack(values)
      groups[group] = (groups[group] or 0) + 1
    end
  end
end
for group, count in pairs(groups) do
  found[#found + 1] = group
  found[#found + 1] = count
end
return found
