#!lua flags=allow-oom
-- Drop the oldest dead letters that are too old, or too many.
-- KEYS  dead
-- ARGV  the oldest id to keep, how many to keep, most to drop
-- Gives how many were dropped.
-- Keeps every letter that is inside both bounds: the server drops whole nodes of a stream, and leaves one that it would
-- have to split. Both are one step, so that what fell off is counted by one reply.
local most = tonumber(ARGV[3])
local dropped = redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[1], 'LIMIT', most)
if dropped < most then -- a limit of 0 would mean none
  dropped = dropped + redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2], 'LIMIT', most - dropped)
end
return dropped
