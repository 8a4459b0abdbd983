#!lua flags=allow-oom
-- Count that work on an entry begins, if it is still ours.
-- KEYS  stream, starts
-- ARGV  group, consumer, entry id, field of the entry in starts, a token of this call's own, '1' to count only a first start
-- Gives how many starts are counted for the entry by now, or nothing if it is not ours any more; minus their number if
-- it was not to be counted.
-- Keeps a start from being forgotten by a crash, for it is noted before it happens, and from being counted twice when the
-- call is sent again, for the note holds the token of the last one.
local row = redis.call('XPENDING', KEYS[1], ARGV[1], ARGV[3], ARGV[3], 1)[1]
if not row or row[2] ~= ARGV[2] then return false end
local count, token = string.match(redis.call('HGET', KEYS[2], ARGV[4]) or '', '^(%d+) (.*)$')
count = tonumber(count or 0)
if token == ARGV[5] then return count end
if ARGV[6] == '1' and count > 0 then return -count end
redis.call('HSET', KEYS[2], ARGV[4], string.format('%.0f %s', count + 1, ARGV[5]))
return count + 1
