#!lua flags=allow-oom
-- First command of a transaction that appends rows of one part of a batch.
-- KEYS  stream, fence
-- ARGV  part
-- Keeps in the fence how many entries the stream has, for sink_note to see how many came.
redis.call('HSET', KEYS[2], 'before/' .. ARGV[1], redis.call('XLEN', KEYS[1]))
