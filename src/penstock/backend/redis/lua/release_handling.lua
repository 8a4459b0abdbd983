#!lua flags=allow-oom
-- Give claims back, so that another entry of the same message may be handled.
-- KEYS  one key per claim
-- ARGV  per claim: the entry it was handled as
-- Gives how many were given back.
-- Keeps what is done, and what another entry has claimed since.
local released = 0
for i = 1, #KEYS do
  if redis.call('GET', KEYS[i]) == ARGV[i] then released = released + redis.call('DEL', KEYS[i]) end
end
return released
