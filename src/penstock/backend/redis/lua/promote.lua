#!lua
-- Make parked deliveries that are due ready again, earliest first.
-- KEYS  parked, retry, dead
-- ARGV  group, most to move, then what a dead letter begins with: field, value, field of the raw bytes
-- Gives how many became ready, and when the next one is due in ms from now (-1: nothing is parked).
-- Keeps each in exactly one place: it is on the retry stream before it leaves the set, in one step. What cannot be opened
-- goes to the dead letters, or it would stop all behind it.
local parked, retry, dead = KEYS[1], KEYS[2], KEYS[3]
for _, key in ipairs({retry, dead}) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind .. ', not a stream')
  end
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
  redis.pcall('XGROUP', 'CREATE', retry, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP after the first time
end
for _, parcel in ipairs(due) do
  local fine, values = pcall(open, parcel)
  if fine then
    redis.call('XADD', retry, '*', unpack(values))
  else
    redis.call('XADD', dead, '*', ARGV[3], ARGV[4], ARGV[5], parcel)
  end
end
-- By rank: the due ones were the lowest scores when this step began, and nothing has come between.
if #due > 0 then redis.call('ZREMRANGEBYRANK', parked, 0, #due - 1) end
local first = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
return {#due, first[2] and math.max(0, tonumber(first[2]) - now) or -1}
