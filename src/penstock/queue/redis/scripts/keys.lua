-- Prelude of every script: the keys, the layouts, the clock. KEYS[1] is penstock:{name}:format,
-- ARGV[1] the time in microseconds ('' = the server's clock), ARGV[2] what is asked, as MessagePack.
--
-- Redis cannot roll back a script. So a script refuses before its first write, and nothing after that write
-- may fail: memory is checked by Redis before the first one, types of keys when the queue is opened.
--
-- Keys, all below penstock:{name}: so that a cluster keeps a queue on one node. An id is a job's queue_id.
--   job:ID        hash: id = who it is (WHO, never changes), row = its state (STATE), kin = its parent (KIN,
--                 children only), body = payload, and where there is one: meta, next (follow-up), prog, res,
--                 hist, err
--   all           zset of ids, score 0, so in the order of ids;  live failed cancelled  the same of those rows only
--   ready         zset of what can be claimed, in claim order; member = created_at and id
--   paused        zset of what a pause holds, as ready;  parked:LOCK the same for a lock
--   front:LOCK    zset of what can be claimed, wants this lock and has a turn below 0, as ready
--   lockers       zset of locks that have parked rows, score 0;  locks  hash lock -> id of its holder
--   backoff       zset of ids of later that were tried before, score 0
--   later         zset of ids by run_at;  lease  zset of ids by lease_until;  waiting  zset of ids, score 0
--   flow:PRIORITY:TENANT  zset of the ids of pending rows with a turn, by turn
--   ended:STATUS  zset of top-level ids by finished_at
--   keys          hash tenant, branch, key -> id of the live top-level row
--   kids:RUN:ID   zset of children of one run, by what can be done to them (see kind_of)
--   names:RUN:ID  hash key -> id of the same children;  tree:ID  zset of all descendants, 0 live, 1 ended
--   counts        hash status, held, item_type -> rows;  backlog  hash class, tenant -> pending top-level rows
--   pauses        hash scope -> phase of its pause and place of its resume (see pauses.lua);  workers  hash of reports;  version  counter of news, told on channel bell
local P, call, unpack = string.sub(KEYS[1], 1, -7), redis.call, unpack
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Names for numbers and formats. They are put in place when the script is loaded: as locals each function would
-- have to be tied to each of them in every call, which cost more than the work itself.
--@constants
-- Who a row is.
local WHO = 'Bsssssss'
local DEDUPE, TYPE, LOCK, TENANT, BRANCH, KEY, COLLECTION, SUBMITTER = 1, 2, 3, 4, 5, 6, 7, 8
-- Whose child it is.
local KIN = '>I4ss'
local PARENT_RUN, PARENT, ROOT = 1, 2, 3
-- Its state. A time of 0 and an empty text are none. What a plain claim and a plain end change stands in front, where
-- it can be exchanged without packing the rest anew. MORE is 1 where the hash has, or had, other fields than id, row
-- and body: a plain row is read without asking for them.
local HEAD = '>BBi4ddddssBBBBdi4'
local STATE = '>BBi4ddddssBBBBdi4i4i4i4i4dddddss'
local SIZE = 26
local STATUS, LOCKED, CLAIM, LEASE, UPDATED, STARTED, FINISHED, WORKER, CODE = 1, 2, 3, 4, 5, 6, 7, 8, 9
local HELD, CANCEL, PRIORITY, MORE, TURN, OPEN = 10, 11, 12, 13, 14, 15
local RUN, RETRIES, LOST, FAILED_KIDS, MAX_RETRIES, TIMEOUT = 16, 17, 18, 19, 20, 21
local CREATED, RUN_AT, ERROR_AT, OP, WAITING_FOR = 22, 23, 24, 25, 26
-- Statuses, reasons to be held, turns below those that are counted, turns in a priority (2^44).
local PENDING, RUNNING, DONE, FAILED, CANCELLED = 1, 2, 3, 4, 5
local FREE, TIMED, PARKED, PAUSED = 0, 1, 2, 3
local SUSPECT, RETURNED = -2, -1
local STRIDE = 17592186044416
-- unpack fails at about 8,000 values.
local CHUNK = 4000
--@end

local function number(value)
  return string.format('%.0f', value)
end

-- A member of ready is created_at and the id.
local function id_in(member)
  return string.sub(member, 15)
end

-- The byte order of ids: < on strings would follow the server's locale.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- A command with more values than one call may have.
local function send(command, key, list)
  for first = 1, #list, CHUNK do
    call(command, key, unpack(list, first, math.min(first + CHUNK - 1, #list)))
  end
end

local function add_up(key, counts)
  for field, change in pairs(counts) do
    if change ~= 0 and call('HINCRBY', key, field, change) == 0 then call('HDEL', key, field) end
  end
end

-- Go on though the server has no memory left: it stops a script only at its first write, and only one that may take
-- memory. For what works the queue off; its rows are there already, and pruning them is what gives memory back.
local function insist()
  call('DEL', P .. 'nothing')
end

-- Tell those who wait that more can be claimed, or that something ended.
local function ring()
  call('PUBLISH', P .. 'bell', call('INCR', P .. 'version'))
end
