#!lua flags=allow-oom
-- Remove consumers that hold nothing.
-- KEYS  stream, steals
-- ARGV  group, then consumers
-- Gives how many of them the group does not know (any more); the others still hold entries.
-- Keeps pending entries: XGROUP DELCONSUMER would throw them away for good.
if redis.call('EXISTS', KEYS[1]) == 0 then return #ARGV - 1 end
local gone = 0
for i = 2, #ARGV do
  if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[i]) == 0 then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[i])
    redis.call('HDEL', KEYS[2], ARGV[i])
    gone = gone + 1
  end
end
return gone
