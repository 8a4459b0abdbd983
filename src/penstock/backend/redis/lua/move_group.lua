#!lua flags=allow-oom
-- Have a group go on behind another entry.
-- KEYS  stream, steals, groups, turn
-- ARGV  group, its field in groups, the entry id ('$': behind all)
-- Gives 1 if it was moved, 0 if it belongs to a sequential reader, whose position is elsewhere.
-- Keeps those who read for it from acking what is now delivered anew: without their counters, every settle of theirs looks
-- at each entry. What was noted of the old position goes in the same step: nothing was lost between the two.
if redis.call('HEXISTS', KEYS[4], 'epoch') == 1 then return 0 end
local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[3])
if moved.err then return moved end
redis.call('DEL', KEYS[2])
redis.call('HDEL', KEYS[3], ARGV[2])
return 1
