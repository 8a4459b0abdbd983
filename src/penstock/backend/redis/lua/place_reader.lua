#!lua flags=allow-oom
-- Put a sequential reader's position wherever its holder says.
-- KEYS  stream, turn
-- ARGV  group, token, entry id, how many entries were ever added up to it (below 0: that is not known), the stream's
--       epoch, the name of our own group, '1' if it is where a snapshot was taken, up to which id what was deleted is
--       not missing
-- Gives {'ok'}, {'lost', current token} or {'other'}: the stream is not that one (any more).
-- Keeps anybody but the holder from moving it, and the position from meaning another stream than the holder saw.
local stream = KEYS[1]
local turn = redis.call('HMGET', KEYS[2], 'token', 'holder')
if turn[1] ~= ARGV[2] or not turn[2] then return {'lost', turn[1] or ''} end
local ours, same = false, false
for _, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  ours = ours or row[2] == ARGV[6]
end
for _, row in ipairs(ours and redis.call('XINFO', 'CONSUMERS', stream, ARGV[6]) or {}) do
  same = same or row[2] == 'epoch-' .. ARGV[5]
end
if not same then return {'other'} end
local set = {'XGROUP', 'SETID', stream, ARGV[1], ARGV[3]}
if tonumber(ARGV[4]) >= 0 then set[6], set[7] = 'ENTRIESREAD', ARGV[4] end
local done = redis.pcall(unpack(set))
if done.err then return done end
redis.call('HSET', KEYS[2], 'at', ARGV[3], 'count', ARGV[4], 'epoch', ARGV[5], 'told', ARGV[8])
if ARGV[7] == '1' then redis.call('HSET', KEYS[2], 'snapshot', '1') end
return {'ok'}
