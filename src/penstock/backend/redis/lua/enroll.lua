#!lua flags=allow-oom
-- Note a consumer among those whose losses are counted.
-- KEYS  steals
-- ARGV  consumer, a random number to start from
-- Gives the consumer's counter.
-- Keeps a counter from matching a fence of an earlier life: after the hash was deleted it starts somewhere else.
redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
return redis.call('HGET', KEYS[1], ARGV[1])
