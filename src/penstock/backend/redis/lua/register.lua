#!lua flags=allow-oom
-- Have a topic listed among those that are known.
-- KEYS  topics
-- ARGV  topic
-- Gives 1 if it was not there, 0 if it was.
-- Keeps a full server from being one that nobody can begin to drain: whoever reads a topic lists it first.
return redis.call('SADD', KEYS[1], ARGV[1])
