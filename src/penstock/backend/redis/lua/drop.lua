#!lua flags=allow-oom
-- Delete entries that a group has settled, where nobody else reads the stream.
-- KEYS  stream, cursors
-- ARGV  group, the name of our own group, then entry ids
-- Gives how many were deleted.
-- Keeps what anybody may still need: whether there is another group or a durable cursor, or this one was moved back and is
-- to be given them again, is seen in the same step.
-- Uses: less
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HLEN', KEYS[2]) > 0 then return 0 end
local newest = ARGV[3]
for i = 4, #ARGV do
  if less(newest, ARGV[i]) then newest = ARGV[i] end
end
for _, facts in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  -- Ours stands at the largest id; one of that name that does not is another program's.
  local name, is_at_end = facts[2], facts[8] == '18446744073709551615-18446744073709551615'
  if name ~= ARGV[1] and (name ~= ARGV[2] or not is_at_end) then return 0 end
  if name == ARGV[1] and less(facts[8], newest) then return 0 end
end
return redis.call('XDEL', KEYS[1], unpack(ARGV, 3))
