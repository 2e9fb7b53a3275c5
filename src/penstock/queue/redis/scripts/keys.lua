-- Prelude of every script: the keys, the layouts, the clock. KEYS[1] is penstock:{name}:format,
-- ARGV[1] the time in microseconds ('' = the server's clock), ARGV[2] the arguments as MessagePack.
--
-- Redis cannot roll back a script. So a script refuses before its first write, and nothing after that write
-- may fail: Redis checks memory before the first write, and types of keys are checked when the queue is opened.
--
-- Keys, all below penstock:{name}: so that a cluster keeps a queue on one node. An id is a job's queue_id.
--   job:ID        hash: id = fixed columns (WHO, never change), row = its state (STATE), kin = its parent (KIN,
--                 children only), body = payload, and if set: meta, next (follow-up), prog, res,
--                 hist, err, after (dependencies as JSON), awaited, limit (key), go (start that the limit gave),
--                 bkey (key for the number of pending rows), ttl (seconds until the result is removed)
--   all           zset of ids, score 0, so in the order of ids;  live failed cancelled  the same, of those rows only
--   ready         zset of claimable rows in claim order; member = created_at and id
--   paused        zset of rows held by a pause, as ready;  parked:LOCK the same for a lock
--   front:LOCK    zset of claimable rows with this lock and a turn below 0, as ready
--   lockers       zset of locks that have parked rows, score 0;  locks  hash lock -> id of its holder
--   waits:ID      zset of rows held until ID has ended, score 0;  awaited  zset of these ids, score 0
--   backoff       zset of ids in later that were tried before or have a start of a limit, score 0
--   limits        hash key -> limit (see limits.lua);  limiters  zset of keys with waiting rows, score 0
--   limited:KEY   zset of rows held for a limit, as ready;  admitted:KEY  zset of ids with a slot, by start
--   later         zset of ids by run_at;  lease  zset of ids by lease_until;  waiting  zset of ids, score 0
--   flow:PRIORITY:TENANT  zset of the ids of pending rows with a turn, by turn
--   ended:STATUS  zset of top-level ids by finished_at
--   keys          hash tenant, branch, key -> id of the live top-level row
--   kids:RUN:ID   zset of children of one run, by child_state
--   names:RUN:ID  hash key -> id of the same children;  tree:ID  zset of all descendants, 0 live, 1 ended
--   counts        hash status, held, item_type -> rows;  backlog  hash class, tenant, or k:KEY -> pending top-level rows
--   results       zset of ended ids with a ttl by the time at which their result is removed
--   pauses        hash scope -> phase of its pause and position of its resume (see pauses.lua)
--   schedules     hash tenant, name -> schedule as JSON;  next  zset of the same fields by next_at
--   workers       hash of reports;  version  counter of changes, published on channel news
local P, call, unpack = string.sub(KEYS[1], 1, -7), redis.call, unpack
-- The time as a number and as text: to format a number costs more than most commands.
local now_text = ARGV[1]
if now_text == '' then
  local time = call('TIME')
  now_text = time[1] .. string.sub('000000', #time[2] + 1) .. time[2]
end
local now = tonumber(now_text)

-- Names for numbers and formats. scripts.py replaces them by their values: as locals they would be bound to each
-- function in every call, which costs more than the work itself. Constants that Python has, too, are in scripts.py.
--@constants
-- The fixed columns of a row.
local WHO = 'Bsssssss'
local DEDUPE, TYPE, LOCK, TENANT, BRANCH, KEY, COLLECTION, SUBMITTER = 1, 2, 3, 4, 5, 6, 7, 8
-- The parent of a child.
local KIN = '>I4ss'
local PARENT_RUN, PARENT, ROOT = 1, 2, 3
-- The state of a row. A time of 0 and an empty text mean none. The values that a plain claim and a plain end change
-- come first, so that they are replaced without packing the rest again. MORE is 1 if the hash has, or had, other
-- fields than id, row and body: a plain row is read without them.
local HEAD = '>BBi4ddddssBBBBdi4'
local STATE = '>BBi4ddddssBBBBdi4i4i4i4i4ddddddss'
local SIZE = 27
local STATUS, LOCKED, CLAIM, LEASE, UPDATED, STARTED, FINISHED, WORKER, CODE = 1, 2, 3, 4, 5, 6, 7, 8, 9
local HELD, CANCEL, PRIORITY, MORE, TURN, OPEN = 10, 11, 12, 13, 14, 15
local RUN, RETRIES, LOST, FAILED_KIDS, TOTAL_CHUNKS, MAX_RETRIES, TIMEOUT = 16, 17, 18, 19, 20, 21, 22
local CREATED, RUN_AT, ERROR_AT, OP, WAITING_FOR = 23, 24, 25, 26, 27
-- Turns in a priority (2^44).
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

-- Compares ids in byte order: < on strings would follow the server's locale.
local function precedes(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Sends a command with more values than one call may have.
local function send(command, key, list)
  for first = 1, #list, CHUNK do
    call(command, key, unpack(list, first, math.min(first + CHUNK - 1, #list)))
  end
end

local function add_counts(key, counts)
  for field, change in pairs(counts) do
    if change ~= 0 and call('HINCRBY', key, field, change) == 0 then call('HDEL', key, field) end
  end
end

-- Lets a script run though the server has no memory left: Redis stops a script only at its first write, and only if
-- that command may take memory. For scripts that drain the queue: their rows exist already, and pruning frees memory.
local function allow_without_memory()
  call('DEL', P .. 'nothing')
end

-- Notifies waiting processes: more rows are claimable, or a job ended.
local function notify()
  call('PUBLISH', P .. 'news', call('INCR', P .. 'version'))
end
