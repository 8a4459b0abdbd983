#!lua flags=allow-oom
-- Make sure a group exists.
-- KEYS  stream, steals, and groups if it is a retry stream
-- ARGV  group, where it starts, '1' to create the stream if need be
-- Gives 1 if it was created, 0 if it was there.
-- Keeps those who read for an earlier group of this name from acking what is now delivered anew: without their counters,
-- every settle of theirs looks at each entry.
local born = 'born/' .. ARGV[1]
if KEYS[3] then redis.call('HGET', KEYS[3], born) end -- before anything is changed: it may be a key of another type
local create = {'XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2]}
if ARGV[3] == '1' then create[6] = 'MKSTREAM' end
local done = redis.pcall(unpack(create))
if done.err then
  if string.find(done.err, 'BUSYGROUP', 1, true) then return 0 end
  return done
end
local known = redis.call('DEL', KEYS[2]) == 1
if known and KEYS[3] then
  -- Somebody read for an earlier one, so it was deleted: what is older than this was in that one, and is nowhere else.
  local time = redis.call('TIME')
  redis.call('HSET', KEYS[3], born, string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)))
end
return 1
