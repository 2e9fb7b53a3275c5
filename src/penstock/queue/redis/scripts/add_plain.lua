-- add_plain: one job without start time, dependencies, limit and metadata, while nothing is paused. The rules are those
-- of add.lua, without the functions of its parts: creating them takes longer than adding one job. Arguments: new job
-- (NEW_* of new_rows.lua), limit of its class, of its tenant (-1 = none). Returns 1; 0: nothing was written, and add
-- decides. Numbers that never change are written as text: to format one costs as much as a command. Keys: as add.

local request = cmsgpack.unpack(ARGV[2])
local new, most, most_of_tenant = request[1], request[2], request[3]
local id, priority = new[1], new[4]
local dedupe, kind, _, tenant, branch, key = struct.unpack('Bsssss', new[2])
local class, job = kind == FUNCTION and 'f' or 'i', P .. 'job:' .. id
if call('EXISTS', P .. 'pauses', job) > 0 then return 0 end
if most >= 0 and tonumber(call('HGET', P .. 'backlog', class) or 0) >= most then return 0 end
if most_of_tenant >= 0 and tonumber(call('HGET', P .. 'backlog', class .. ':' .. tenant) or 0) >= most_of_tenant then
  return 0
end
if dedupe == 1 and call('HSETNX', P .. 'keys', tenant .. '\0' .. branch .. '\0' .. key, id) == 0 then return 0 end

-- The turn, as in turns.lua.
local first, flow, turn = (10 - priority) * STRIDE, P .. 'flow:' .. priority .. ':' .. tenant, 0
local head = call('ZRANGEBYSCORE', P .. 'ready', number(first + 2), number(first + STRIDE - 1), 'WITHSCORES', 'LIMIT', '0', '1')
if head[2] then turn = math.max(turn, tonumber(head[2]) - first - 2) end
local last = call('ZREVRANGE', flow, '0', '0', 'WITHSCORES')
if last[2] then turn = math.max(turn, tonumber(last[2]) + 1) end

call('HSET', job, 'id', new[2], 'row', struct.pack(STATE, PENDING, 0, 0, 0, now, 0, 0, '', '', FREE, 0, priority, 0, turn,
  0, 1, 0, 0, 0, 0, new[5], new[6], now, 0, 0, new[3], ''), 'body', new[8])
call('ZADD', P .. 'ready', number(first + turn + 2), string.format('%014x', now) .. id)
call('ZADD', P .. 'all', '0', id)
call('ZADD', P .. 'live', '0', id)
call('ZADD', flow, number(turn), id)
call('HINCRBY', P .. 'backlog', class, '1')
call('HINCRBY', P .. 'backlog', class .. ':' .. tenant, '1')
call('HINCRBY', P .. 'counts', PENDING_FREE .. kind, '1')
notify()
return 1
