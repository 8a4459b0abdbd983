#!lua flags=allow-oom
-- Note that a batch is in the stream, and forget how it got there.
-- KEYS  fence, set of the batch's ids
-- ARGV  batch, how long to remember in ms, rows that the parts of the batch must add up to ('' for any)
-- Gives 'ok', or how many rows the fence counts instead; then nothing is changed.
-- Keeps late writers out: who holds an older attempt finds the batch done, not an empty set or fence.
local fence, batch = KEYS[1], tonumber(ARGV[1])
local held = redis.call('HGETALL', fence)
local newest, rows = -1, 0
for i = 1, #held, 2 do
  if held[i] == 'done' then newest = tonumber(held[i + 1]) end
  local at, count = string.match(held[i + 1], '^(%d+) (%d+) ')
  if at and tonumber(at) == batch then rows = rows + count end
end
if newest < batch then
  if ARGV[3] ~= '' and rows ~= tonumber(ARGV[3]) then return rows end
  redis.call('DEL', fence)
  redis.call('HSET', fence, 'done', ARGV[1])
end
redis.call('UNLINK', KEYS[2])
redis.call('PEXPIRE', fence, ARGV[2])
return 'ok'
