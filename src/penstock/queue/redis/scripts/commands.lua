-- commands: runs commands atomically. Unlike MULTI, reads work on a server without memory, too.
-- Keys: those of the commands.
local answers = {}
for i, command in ipairs(cmsgpack.unpack(ARGV[2])) do answers[i] = call(unpack(command)) end
return answers
