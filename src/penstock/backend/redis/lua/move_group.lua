#!lua flags=allow-oom
-- Have a group go on behind another entry.
-- KEYS  stream, steals, groups, turn
-- ARGV  group, its field in groups, the entry id ('$': behind all)
-- Gives 1 if it was moved, 0 if it belongs to a sequential reader, whose position is elsewhere, or the stream's last id if
-- that is before the place: what comes before the place would pass the group by, and would be trimmed as if it was settled.
-- Keeps those who read for it from acking what is now delivered anew: without their counters, every settle of theirs looks
-- at each entry. What was noted of the old position goes in the same step: nothing was lost between the two. An empty note
-- stays, so that who restores a group that vanishes next does not go by what it saw before.
if redis.call('HEXISTS', KEYS[4], 'epoch') == 1 then return 0 end
local function digits(id) -- of equal length, so that they compare as texts: doubles lose the low digits of 64-bit ids
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #number) .. number
end
if ARGV[3] ~= '$' then
  local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
  if info.err then return info end
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' and digits(ARGV[3]) > digits(info[i + 1]) then return info[i + 1] end
  end
end
local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], ARGV[1], ARGV[3])
if moved.err then return moved end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[3], ARGV[2], '{}')
return 1
