-- Functions for every script. The constants (upper case) come from lists.py.
-- Deletes a key of another type in place of a job's hash: some producers keep text there, and a script that failed
-- on it would leave its work half done.
local function remove_other_type(hash)
  local key_type = redis.call('TYPE', hash).ok
  if key_type ~= 'hash' and key_type ~= 'none' then
    redis.call('DEL', hash)
  end
end
-- Whether this gateway owns a job. A job without an owner whose end was not written becomes its own: the server has
-- lost its data.
local function own(open, hash, gateway, job)
  remove_other_type(hash)
  local owner = redis.call('HGET', open, job)
  if not owner then
    local status = redis.call('HGET', hash, 'status')
    if status ~= DONE and status ~= FAILED then
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
  local key_type = redis.call('TYPE', key).ok
  return key_type == 'list' or key_type == 'none'
end
-- Pushes a dead letter. If the key holds another type, the letter goes to a second list: a script that failed here
-- would lose the message.
local function add_dead_letter(list, letter)
  redis.call('LPUSH', is_list(list) and list or list .. ':aside', letter)
end
-- Producers may write "submitted" into a hash after they pushed the message (the order in the contract), and so after
-- a gateway wrote a later status. The last fields that gateways wrote are kept, compared later, and restored.
local function remember(job, hash)
  local fields, values = {}, redis.call('HMGET', hash, unpack(STATUS_FIELDS))
  for i, name in ipairs(STATUS_FIELDS) do
    if values[i] then
      fields[#fields + 1] = name
      fields[#fields + 1] = values[i]
    end
  end
  redis.call('HSET', RECENT_FIELDS, job, cjson.encode({ stage = 1, fields = fields }))
  redis.call('ZADD', RECENT, now_ms() + RECHECK_MS[1], job)
end
-- Whether a hash may be written for a message without a job: no job of this id is open or has ended.
local function unused(open, hash, job)
  remove_other_type(hash)
  local status = redis.call('HGET', hash, 'status')
  local free = not status or status == SUBMITTED or status == QUEUED
  return free and redis.call('HEXISTS', open, job) == 0
end
