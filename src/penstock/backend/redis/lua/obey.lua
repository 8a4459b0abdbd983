#!lua flags=allow-oom
-- Pause or resume a group, as an entry of a control topic says.
-- KEYS  paused, obeyed
-- ARGV  group, '1' to pause or '0' to resume, the control stream's epoch, the entry's id there
-- Gives 1, or 0 if this entry, or a later one of that stream, was obeyed before.
-- Keeps somebody who is late from taking back what a later command said: whoever obeys, and when, the last word counts.
-- Uses: less
local group, pause, epoch, id = ARGV[1], ARGV[2] == '1', ARGV[3], ARGV[4]
redis.call('SISMEMBER', KEYS[1], group) -- a key of the wrong type must not leave half of it behind
local of, last = string.match(redis.call('HGET', KEYS[2], group) or '', '^(%x*) (%d+%-%d+)$')
if of == epoch and not less(last, id) then return 0 end
redis.call(pause and 'SADD' or 'SREM', KEYS[1], group)
redis.call('HSET', KEYS[2], group, epoch .. ' ' .. id)
return 1
