#!lua
-- Put messages aside for a group, until they are due for their first attempt.
-- KEYS  parked
-- ARGV  'in' or 'at', ms from now or since 1970, the trail: how keys of records begin ('': none are kept), the lane, how
--       long they last in ms; then one parcel per message
-- Gives when they are due, in ms since 1970.
-- Keeps a message from being there twice when the call is sent again: its parcel is its name in the set.
-- Uses: must_be
must_be('zset', KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = string.format('%.0f', ARGV[1] == 'in' and now + ARGV[2] or tonumber(ARGV[2]))
local prefix, lane, keep = ARGV[3], ARGV[4], ARGV[5] == '' and 0 or math.max(0, due - now) + ARGV[5]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, string.format('%.0f', keep))
end
local function id_of(parcel) -- of the message in it: first, as a rule, or behind the document of a job
  if string.sub(parcel, 1, 10) == '\0\0\0\2id\0\0\0\36' then return string.sub(parcel, 11, 46) end
  local fine, name, value, at = pcall(struct.unpack, '>I4c0I4c0', parcel, 1)
  if fine and name == 'data' then fine, name, value = pcall(struct.unpack, '>I4c0I4c0', parcel, at) end
  return fine and name == 'job_id' and value
end
for i = 6, #ARGV do
  redis.call('ZADD', KEYS[1], due, ARGV[i])
  if prefix ~= '' then trail(id_of(ARGV[i]), 'parked ' .. lane .. ' ' .. due) end
end
return due
