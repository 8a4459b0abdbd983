#!lua flags=allow-oom
-- Remove a group, and all that is kept for it.
-- KEYS  stream, groups, paused, obeyed, then keys that are the group's alone
-- ARGV  group, its fields in groups
-- Gives how many things were removed.
-- Keeps a group from being half there: whoever looks sees it whole, or not at all.
for i, look in ipairs({'HLEN', 'SCARD', 'HLEN'}) do redis.call(look, KEYS[i + 1]) end -- one may be of another type
local removed = 0
if redis.call('EXISTS', KEYS[1]) == 1 then removed = redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) end
for i = 5, #KEYS do removed = removed + redis.call('UNLINK', KEYS[i]) end
redis.call('HDEL', KEYS[2], unpack(ARGV, 2))
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
return removed
