#!lua flags=allow-oom
-- Last command of a transaction that appends rows of one part of a batch: note that they are there.
-- KEYS  stream, fence, fence of the part
-- ARGV  part, value to expect, value to leave, how long to remember in ms, rows
-- Keeps rows and fence together: the value says how many rows of the part are in the stream, at any moment. A command
-- that fails inside a transaction does not stop the others, so nothing is noted unless every row came.
local stream, fence, part, before = KEYS[1], KEYS[2], ARGV[1], 'before/' .. ARGV[1]
local came = redis.call('XLEN', stream) - redis.call('HGET', fence, before)
redis.call('HDEL', fence, before)
if came == tonumber(ARGV[5]) and redis.call('HGET', fence, part) == ARGV[2] then
  redis.call('HSET', fence, part, ARGV[3])
  redis.call('PEXPIRE', fence, ARGV[4])
  redis.call('PEXPIRE', KEYS[3], ARGV[4])
end
