#!lua flags=allow-oom
-- Put a durable cursor elsewhere in its topic, wherever it stands.
-- KEYS  cursors
-- ARGV  cursor, what it is to hold
-- Gives 1, or 0 if there is no such cursor.
-- Keeps the topic pinned all the while: the cursor is never away between its old place and its new one.
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
