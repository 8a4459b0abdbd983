#!lua
-- Put the next entry of a sequential reader to the dead letters, and move the reader's position behind it.
-- KEYS  stream, turn, dead
-- ARGV  group, token, the position the caller believes in, the entry's id, how many were ever added up to it ('' if nobody
--       knows), then the letter's fields and values
-- Gives {'ok', new position}, {'lost', current token} or {'elsewhere', current position}.
-- Keeps the entry from being lost on its way: the copy is written before the position moves, in one step, and only from
-- where it is, so that a second try writes no second letter.
-- Uses: facts, must_be
local stream, group = KEYS[1], ARGV[1]
for i, right in ipairs({'stream', 'hash', 'stream'}) do must_be(right, KEYS[i]) end
local turn = redis.call('HMGET', KEYS[2], 'token', 'holder')
if turn[1] ~= ARGV[2] or not turn[2] then return {'lost', turn[1] or ''} end
local info
for _, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  if row[2] == group then info = facts(row) end -- the name comes first
end
if not info then return redis.error_reply('NOGROUP no group ' .. group .. ' on ' .. stream) end
if info['last-delivered-id'] ~= ARGV[3] then return {'elsewhere', info['last-delivered-id']} end
local set, count = {'XGROUP', 'SETID', stream, group, ARGV[4]}, -1
if ARGV[5] ~= '' then
  count = ARGV[5]
elseif info['entries-read'] then
  count = string.format('%.0f', info['entries-read'] + 1)
end
if count ~= -1 then set[6], set[7] = 'ENTRIESREAD', count end -- without it the server could tell no lag any more
redis.call('XADD', KEYS[3], '*', unpack(ARGV, 6))
redis.call(unpack(set))
redis.call('HSET', KEYS[2], 'at', ARGV[4], 'count', count)
return {'ok', ARGV[4]}
