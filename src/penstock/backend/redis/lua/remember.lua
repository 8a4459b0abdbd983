#!lua flags=allow-oom
-- Put a name into a set: a topic among those that are known, or a group among those that are paused.
-- KEYS  set
-- ARGV  name
-- Gives 1 if it was not there, 0 if it was.
-- Keeps a full server from being one that nobody can begin to drain, for whoever reads a topic lists it first; and one
-- where nobody can stop a group that fills it.
return redis.call('SADD', KEYS[1], ARGV[1])
