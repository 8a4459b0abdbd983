#!lua flags=allow-oom
-- Give a turn up, so that another holder may take it at once.
-- KEYS  turn
-- ARGV  token
-- Gives 1 if it was ours, else 0.
-- Keeps the last token: the next holder's must be larger. What was begun was not what ended its holder.
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
local left = redis.call('HDEL', KEYS[1], 'holder', 'until')
redis.call('HDEL', KEYS[1], 'begun')
return left > 0 and 1 or 0
