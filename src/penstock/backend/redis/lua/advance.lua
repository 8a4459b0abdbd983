#!lua flags=allow-oom
-- Move a sequential reader's position.
-- KEYS  stream, turn
-- ARGV  group, token, the position the caller believes in, the new position, how many entries lie between, how many were
--       ever added up to the new position ('' to count on from what the group has)
-- Gives {'ok', new position}, {'lost', current token} or {'elsewhere', current position}.
-- Keeps two acks of one message from both counting: only the holder of the turn moves the position, and only from where
-- it is.
-- Uses: facts
local stream, group = KEYS[1], ARGV[1]
local turn = redis.call('HMGET', KEYS[2], 'token', 'holder')
if turn[1] ~= ARGV[2] or not turn[2] then return {'lost', turn[1] or ''} end
local info
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  if row[2] == group then info = facts(row) end -- the name comes first
end
if not info then return redis.error_reply('NOGROUP no group ' .. group .. ' on ' .. stream) end
if info['last-delivered-id'] ~= ARGV[3] then return {'elsewhere', info['last-delivered-id']} end
local set, count = {'XGROUP', 'SETID', stream, group, ARGV[4]}, -1
if ARGV[6] ~= '' then
  count = ARGV[6]
elseif info['entries-read'] then
  count = string.format('%.0f', info['entries-read'] + ARGV[5])
end
if count ~= -1 then set[6], set[7] = 'ENTRIESREAD', count end -- without it the server could tell no lag any more
redis.call(unpack(set))
redis.call('HSET', KEYS[2], 'at', ARGV[4], 'count', count)
return {'ok', ARGV[4]}
