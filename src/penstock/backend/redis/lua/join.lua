#!lua flags=allow-oom
-- Be one of those who share a topic's partitions out among themselves.
-- KEYS  members
-- ARGV  member, lease in ms
-- Gives all whose lease has not run out.
-- Keeps one clock for all, that of the server. One that was set back lengthens nobody's lease by more than itself.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. string.format('%.0f', now + 10 * ARGV[2]), '+inf')
redis.call('PEXPIRE', KEYS[1], 10 * ARGV[2])
return redis.call('ZRANGE', KEYS[1], 0, -1)
