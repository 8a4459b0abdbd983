#!lua flags=allow-oom
-- Have a group go on behind another entry.
-- KEYS  stream, steals, groups, turn
-- ARGV  group, its field in groups, the entry id ('$': behind all), how many of all entries ever added lie up to there ('':
--       the caller does not know)
-- Gives 1 if it was moved, 0 if it belongs to a sequential reader, whose position is elsewhere, or the stream's last id if
-- that is before the place: what comes before the place would pass the group by, and would be trimmed as if it was settled.
-- Keeps those who read for it from acking what is now delivered anew: without their counters, every settle of theirs looks
-- at each entry. What was noted of the old position goes in the same step: nothing was lost between the two. Where one
-- was, an empty one stays, so that who restores a group that vanishes next does not go by what it saw before.
if redis.call('HEXISTS', KEYS[4], 'epoch') == 1 then return 0 end
local function digits(id) -- of equal length, so that they compare as texts: doubles lose the low digits of 64-bit ids
  local ms, number = string.match(id, '^(%d+)-(%d+)$')
  return string.rep('0', 20 - #ms) .. ms .. string.rep('0', 20 - #number) .. number
end
local info, rows = {}, redis.pcall('XINFO', 'STREAM', KEYS[1])
if rows.err then return rows end
for i = 1, #rows, 2 do info[rows[i]] = rows[i + 1] end
local last, place = info['last-generated-id'], ARGV[3]
if place == '$' then place = last end
if digits(place) > digits(last) then return last end
-- From how many it was given, others tell later whether it missed any.
local move, read = {'XGROUP', 'SETID', KEYS[1], ARGV[1], place}, tonumber(ARGV[4])
if place == last then
  read = info['entries-added']
elseif info.length == 0 or digits(place) < digits(info['recorded-first-entry-id']) then
  read = info['entries-added'] - info.length
end
if read then move[6], move[7] = 'ENTRIESREAD', string.format('%.0f', math.min(read, info['entries-added'])) end
local moved = redis.pcall(unpack(move))
if moved.err then return moved end
redis.call('DEL', KEYS[2])
if redis.call('HEXISTS', KEYS[3], ARGV[2]) == 1 then redis.call('HSET', KEYS[3], ARGV[2], '{}') end
return 1
