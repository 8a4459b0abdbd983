#!lua flags=allow-oom
-- Become, or stay, the one holder of a sequential reader.
-- KEYS  turn
-- ARGV  holder, lease in ms
-- Gives {1, token} if the turn is ours for the lease, else {0, ms until it may be free}.
-- Keeps two leases from holding at once, and every new holder's token larger than all before it, even if the key was
-- deleted: a token is never smaller than the server's clock in microseconds, and a take takes longer than one.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local turn = redis.call('HMGET', KEYS[1], 'holder', 'token', 'until')
local expires = tonumber(turn[3] or 0)
if turn[1] and turn[1] ~= ARGV[1] and expires > now then return {0, expires - now} end
local token = turn[2]
if not token or turn[1] ~= ARGV[1] or expires <= now then
  token = string.format('%.0f', math.max(tonumber(token or 0) + 1, time[1] * 1000000 + time[2]))
end
redis.call('HSET', KEYS[1], 'holder', ARGV[1], 'token', token, 'until', string.format('%.0f', now + ARGV[2]))
return {1, tonumber(token)}
