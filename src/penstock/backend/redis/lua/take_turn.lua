#!lua flags=allow-oom
-- Become, or stay, the one holder of a sequential reader.
-- KEYS  turn
-- ARGV  holder, lease in ms
-- Gives {1, token} if the turn is ours for the lease, else {0, ms until it may be free}.
-- Keeps two leases from holding at once, and every new holder's token larger than all before it, even if the key was
-- deleted: a token is never smaller than the server's clock in microseconds, and a take takes longer than one. A clock
-- that was set back lengthens no lease by more than itself. Notes that a holder did not leave: what it had begun may be
-- what killed it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local turn = redis.call('HMGET', KEYS[1], 'holder', 'token', 'until', 'lease')
local expires, lease = tonumber(turn[3] or 0), tonumber(turn[4] or 0)
local others = turn[1] and turn[1] ~= ARGV[1]
if others and expires > now then
  if lease > 0 and expires - now > lease then
    expires = now + lease
    redis.call('HSET', KEYS[1], 'until', string.format('%.0f', expires))
  end
  return {0, expires - now}
end
local token = turn[2]
if not token or turn[1] ~= ARGV[1] or expires <= now then
  token = string.format('%.0f', math.max(tonumber(token or 0) + 1, time[1] * 1000000 + time[2]))
end
redis.call(
  'HSET', KEYS[1], 'holder', ARGV[1], 'token', token, 'until', string.format('%.0f', now + ARGV[2]), 'lease', ARGV[2]
)
if others then redis.call('HSET', KEYS[1], 'crashed', token) end
return {1, tonumber(token)}
