#!lua flags=allow-oom
-- Drop the oldest dead letters that are too old, or too many.
-- KEYS  dead
-- ARGV  the oldest id to keep, how many to keep, most to drop
-- Gives how many were dropped.
-- Keeps every letter that is inside both bounds, and to the most to drop. With ~ the server drops whole nodes of a stream
-- and leaves one that it would have to split; without, it takes no limit, so that is done only where the count allows
-- no more. All is one step, so that what fell off is counted by one reply.
local dead, most = KEYS[1], tonumber(ARGV[3])
local dropped = redis.call('XTRIM', dead, 'MINID', '~', ARGV[1], 'LIMIT', most)
if redis.call('XLEN', dead) <= most - dropped then
  dropped = dropped + redis.call('XTRIM', dead, 'MINID', '=', ARGV[1])
end
if dropped < most then -- a limit of 0 would mean none
  dropped = dropped + redis.call('XTRIM', dead, 'MAXLEN', '~', ARGV[2], 'LIMIT', most - dropped)
end
if redis.call('XLEN', dead) - ARGV[2] <= most - dropped then
  dropped = dropped + redis.call('XTRIM', dead, 'MAXLEN', '=', ARGV[2])
end
return dropped
