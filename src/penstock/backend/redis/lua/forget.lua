#!lua flags=allow-oom
-- Remove a consumer that holds nothing.
-- KEYS  stream, steals
-- ARGV  group, consumer
-- Gives 1 if the group does not know the consumer (any more), 0 if it still holds entries.
-- Keeps pending entries: XGROUP DELCONSUMER would throw them away for good.
if redis.call('EXISTS', KEYS[1]) == 0 then return 1 end
local rows = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2])
if #rows > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
redis.call('HDEL', KEYS[2], ARGV[2])
return 1
