#!lua flags=allow-oom
-- Ack what was recalled before anybody read it, and that we have read now.
-- KEYS  recalled, stream
-- ARGV  group, '1' if it is a retry stream: delete them there too, then entry ids
-- Gives the ids of those that were recalled.
-- Keeps each from being done: whoever reads an entry asks this before it is begun.
local gone = {}
for i = 3, #ARGV do
  if redis.call('SREM', KEYS[1], KEYS[2] .. '@' .. ARGV[i]) == 1 then
    redis.call('XACK', KEYS[2], ARGV[1], ARGV[i])
    if ARGV[2] == '1' then redis.call('XDEL', KEYS[2], ARGV[i]) end
    gone[#gone + 1] = ARGV[i]
  end
end
return gone
