#!lua
-- Put a message into a lane, or aside until it is due, unless another one stands for the same thing.
-- KEYS  the note of who stands for it, the lane's stream, parked, record of the message
-- ARGV  the note as the caller knows it ('': none), what it is to be then but for the place, how long it lasts in ms, the
--       lane, 'now', 'in' or 'at', ms from now or since 1970, how long records last in ms, then fields and values, or, if it
--       is put aside, its parcel
-- Gives 1 and its entry id, or when it is due; or 0 and the note as it is.
-- Keeps two callers from both standing for it: the look, the writing and the note are one step.
-- Uses: must_be
local lock, stream, parked, record = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
for i, right in ipairs({'string', 'stream', 'zset', 'hash'}) do must_be(right, KEYS[i]) end
local known = redis.call('GET', lock) or ''
if known ~= ARGV[1] then return {0, known} end
local where, life = nil, tonumber(ARGV[3])
if ARGV[5] == 'now' then
  where = redis.call('XADD', stream, '*', unpack(ARGV, 8))
  redis.call('SET', lock, ARGV[2] .. ' lane ' .. ARGV[4] .. ' ' .. where, 'PX', ARGV[3])
else
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  where = string.format('%.0f', ARGV[5] == 'in' and now + ARGV[6] or tonumber(ARGV[6]))
  redis.call('ZADD', parked, where, ARGV[8])
  local place, left = 'parked ' .. ARGV[4] .. ' ' .. where, math.max(0, where - now)
  redis.call('SET', lock, ARGV[2] .. ' ' .. place, 'PX', string.format('%.0f', life + left))
  redis.call('HSET', record, 'at', place)
  redis.call('PEXPIRE', record, string.format('%.0f', ARGV[7] + left))
end
return {1, where}
