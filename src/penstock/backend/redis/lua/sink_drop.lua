#!lua flags=allow-oom
-- Have what an attempt has sent under a fence and is still on its way come to nothing, before it goes on without it.
-- KEYS  fence
-- ARGV  part, token of the attempt, its lap
-- Gives what the fence says of the part's rows, or nothing if the part is not ours.
-- Keeps an attempt from being fenced off by rows of its own: what is late expects the token of an earlier lap. Another
-- attempt's is left alone.
local held = redis.call('HGET', KEYS[1], ARGV[1]) or ''
local rows, token, lap = string.match(held, '^(.*) ([^ .]+)%.?(%d*)$')
if token ~= ARGV[2] then return false end
if tonumber(ARGV[3]) > (tonumber(lap) or 0) then
  redis.call('HSET', KEYS[1], ARGV[1], rows .. ' ' .. token .. '.' .. ARGV[3])
end
return rows
