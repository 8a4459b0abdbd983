#!lua
-- Make sure a group exists.
-- KEYS  stream, steals
-- ARGV  group, where it starts, '1' to create the stream if need be
-- Gives 1 if it was created, 0 if it was there.
-- Keeps those who read for an earlier group of this name from acking what is now delivered anew: without their counters,
-- every settle of theirs looks at each entry.
local create = {'XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2]}
if ARGV[3] == '1' then create[6] = 'MKSTREAM' end
local done = redis.pcall(unpack(create))
if done.err then
  if string.find(done.err, 'BUSYGROUP', 1, true) then return 0 end
  return done
end
redis.call('DEL', KEYS[2])
return 1
