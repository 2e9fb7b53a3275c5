-- Before every script, after a line with the names of the fields that gateways write: STATUS_FIELDS.
-- What stands in the place of a job's hash and is none goes: some producers keep a text there, and a script that
-- stumbles over it would be left half done.
local function make_room(hash)
  local kind = redis.call('TYPE', hash).ok
  if kind ~= 'hash' and kind ~= 'none' then
    redis.call('DEL', hash)
  end
end
-- Whether a job is this gateway's to tell of. One that is nobody's although its end was not told becomes so: the
-- server has lost its memory.
local function own(open, hash, gateway, job)
  make_room(hash)
  local owner = redis.call('HGET', open, job)
  if not owner then
    local status = redis.call('HGET', hash, 'status')
    if status ~= 'done' and status ~= 'failed' then
      redis.call('HSET', open, job, gateway)
      owner = gateway
    end
  end
  return owner == gateway
end
-- The server's clock in milliseconds: gateways on several hosts have no clock in common.
local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
local function is_list(key)
  local kind = redis.call('TYPE', key).ok
  return kind == 'list' or kind == 'none'
end
-- Push a dead letter. Where something else has the place of the list, the letter goes to a list beside it: a script
-- that fails half way would lose the message.
local function bury(list, letter)
  redis.call('LPUSH', is_list(list) and list or list .. ':aside', letter)
end
-- Producers may write "submitted" into a hash after they pushed the message (the contract's own order), so after a
-- gateway wrote a later status. What gateways wrote last is kept here and compared, and put back, some seconds later.
local RECENT, RECENT_FIELDS = 'rag:ingest:recent', 'rag:ingest:recent:fields'
local CHECKS_MS = { 2000, 15000, 60000 }
local function remember(job, hash)
  local fields, values = {}, redis.call('HMGET', hash, unpack(STATUS_FIELDS))
  for i, name in ipairs(STATUS_FIELDS) do
    if values[i] then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[i]
    end
  end
  redis.call('HSET', RECENT_FIELDS, job, cjson.encode({ stage = 1, fields = fields }))
  redis.call('ZADD', RECENT, now_ms() + CHECKS_MS[1], job)
end
-- Whether a hash may be written for a message that is no job: no job of this id is open or has ended.
local function unused(open, hash, job)
  make_room(hash)
  local status = redis.call('HGET', hash, 'status')
  local free = not status or status == 'submitted' or status == 'queued'
  return free and redis.call('HEXISTS', open, job) == 0
end
