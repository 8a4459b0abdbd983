#!lua flags=allow-oom
-- Have the transactions of an attempt that are still on their way come to nothing, before it goes on without them.
-- KEYS  fence, fence of the part
-- ARGV  part, token of the attempt, how long to remember in ms
-- Gives what the fence holds from now on.
-- Keeps rows from being written twice: set, not deleted, because who watches a key that is not there does not see it
-- deleted. And only if the part is ours: else its new writer would lose its own.
local held = redis.call('HGET', KEYS[1], ARGV[1])
if not held or string.sub(held, -#ARGV[2]) == ARGV[2] then redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3]) end
return held
