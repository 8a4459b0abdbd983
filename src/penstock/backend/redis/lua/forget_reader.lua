#!lua flags=allow-oom
-- Remove a sequential reader and its position.
-- KEYS  stream, turn
-- ARGV  group
-- Gives 1 if there was such a reader, else 0.
-- Keeps the last token, as every later holder's must be larger; and counts, so that those who read, or stand by, under
-- this name end with it instead of beginning anew.
local known = redis.call('HEXISTS', KEYS[2], 'epoch')
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) == 1 then known = 1 end
redis.call(
  'HDEL', KEYS[2], 'holder', 'until', 'lease', 'at', 'count', 'epoch', 'crashed', 'head', 'failed', 'begun', 'noted',
  'told', 'snapshot'
)
redis.call('HINCRBY', KEYS[2], 'generation', 1)
return known
