#!lua
-- Note another number of partitions.
-- KEYS  partitions
-- ARGV  the number the caller believes in, the new one
-- Gives 1, or 0 if it is another by now.
-- Keeps two who renumber at the same time from both believing that they did.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1
