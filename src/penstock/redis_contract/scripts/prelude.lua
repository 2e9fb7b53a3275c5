-- Before every script.
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
