-- Commands with nothing in between, as MULTI would have it; but a server without memory refuses MULTI also for reading.
-- Keys: as the commands have them.
local answers = {}
for i, command in ipairs(cmsgpack.unpack(ARGV[2])) do answers[i] = call(unpack(command)) end
return answers
