#!lua flags=allow-oom
-- Forget who stands for a key.
-- KEYS  the note of who stands for it
-- ARGV  the message that does so no more
-- Gives 1 if it did.
-- Keeps another one's note, which may have come in its place.
if string.match(redis.call('GET', KEYS[1]) or '', '^%S+') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
