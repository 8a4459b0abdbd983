#!lua
-- Make parked deliveries that are due ready again, earliest first.
-- KEYS  parked, retry, dead, steals
-- ARGV  group, most to move (fewer if they are large), how a dead letter begins: field, value, field of the bytes; the
--       trail: how keys of records begin ('': none are kept), the lane, how long they last in ms
-- Gives how many left the set, and when the next one is due in ms from now (-1: nothing is parked).
-- Keeps each in exactly one place: it is on the retry stream before it leaves the set, in one step. What cannot be
-- opened or written goes to the dead letters: it would stop all behind it, and those before it would come twice.
local parked, retry, dead = KEYS[1], KEYS[2], KEYS[3]
for _, key in ipairs({retry, dead}) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind .. ', not a stream')
  end
end
local prefix, lane, keep = ARGV[6], ARGV[7], ARGV[8]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, keep)
end
local function open(parcel)
  local values, at, value = {}, 1, nil
  while at <= #parcel do
    value, at = struct.unpack('>I4c0', parcel, at)
    values[#values + 1] = value
  end
  assert(#values > 0 and #values % 2 == 0)
  return values
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = redis.call('ZRANGE', parked, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #due > 0 then
  local known = redis.call('EXISTS', retry) == 1
  local created = redis.pcall('XGROUP', 'CREATE', retry, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP, as a rule
  -- A new group on a stream that was there delivers again what readers of the old one may still hold.
  if known and not created.err then redis.call('DEL', KEYS[4]) end
end
local moved, bytes = 0, 0
for _, parcel in ipairs(due) do
  if bytes > 1048576 then break end
  moved, bytes = moved + 1, bytes + #parcel
  local fine = pcall(function()
    local values = open(parcel)
    local id = redis.call('XADD', retry, '*', unpack(values))
    trail(values[1] == 'id' and values[2] or values[3] == 'job_id' and values[4], 'retry ' .. lane .. ' ' .. id)
  end)
  if not fine then redis.call('XADD', dead, '*', ARGV[3], ARGV[4], ARGV[5], parcel) end
end
-- By rank: the due ones were the lowest scores when this step began, and nothing has come between.
if moved > 0 then redis.call('ZREMRANGEBYRANK', parked, 0, moved - 1) end
local first = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
return {moved, first[2] and math.max(0, tonumber(first[2]) - now) or -1}
