#!lua flags=allow-oom
-- Count what became of the one entry that a sequential reader has in hand.
-- KEYS  turn
-- ARGV  token, entry id, the number of the attempt that failed, '0' if work on it begins
-- Gives {'ok', how often it failed by now} or {'lost', current token}.
-- Keeps a crash from being forgotten: work that begins is noted before it does, and if another holder notes it again,
-- without its having failed, been acknowledged or been left in good order, whoever had begun it has died of it. What the
-- same holder says again, since it did not hear the answer, counts once.
local turn = redis.call('HMGET', KEYS[1], 'token', 'holder', 'head', 'failed', 'begun', 'noted')
if turn[1] ~= ARGV[1] or not turn[2] then return {'lost', turn[1] or ''} end
local failed = turn[3] == ARGV[2] and tonumber(turn[4] or 0) or 0
local note = table.concat(ARGV, ' ')
if turn[6] == note then return {'ok', failed} end
if ARGV[3] ~= '0' then
  failed = failed + 1
  redis.call('HDEL', KEYS[1], 'begun')
else
  if turn[5] == ARGV[2] then failed = failed + 1 end
  redis.call('HSET', KEYS[1], 'begun', ARGV[2])
end
redis.call('HSET', KEYS[1], 'head', ARGV[2], 'failed', failed, 'noted', note)
return {'ok', failed}
