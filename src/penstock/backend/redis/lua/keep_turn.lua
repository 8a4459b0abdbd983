#!lua flags=allow-oom
-- Start a turn's lease anew.
-- KEYS  turn
-- ARGV  token, lease in ms
-- Gives 1, or 0 if it is not ours any more.
-- Keeps the token: a lease that ran out while nobody else took the turn has been ours all the time.
local turn = redis.call('HMGET', KEYS[1], 'token', 'holder')
if turn[1] ~= ARGV[1] or not turn[2] then return 0 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'until', string.format('%.0f', now + ARGV[2]), 'lease', ARGV[2])
return 1
