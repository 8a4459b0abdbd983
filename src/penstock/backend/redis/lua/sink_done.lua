#!lua flags=allow-oom
-- Note that a batch is in the stream, and forget how it got there.
-- KEYS  fence, set of the batch's ids
-- ARGV  batch, how long to remember in ms, rows that the batch has, 'parts' if the fence must have counted as many,
--       '1' to note it and '0' to count only
-- Gives {'ok', rows counted here}; and with nothing changed {'ahead', batch} if a newer one is done, {'other', rows} if
-- this one was done with another number of rows, {'parts', rows} if the fence counts another number.
-- Keeps late writers out: who holds an older attempt finds the batch done, not an empty set or fence.
local fence, ids, batch, rows, by_parts = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[3]), ARGV[4] == 'parts'
local held, counted = redis.call('HGETALL', fence), 0
for i = 1, #held, 2 do
  local at, count = string.match(held[i + 1], '^(%d+) (%d+)')
  if held[i] == 'done' and tonumber(at) > batch then return {'ahead', at} end
  if held[i] == 'done' and tonumber(at) == batch then
    if tonumber(count) ~= rows then return {'other', count} end
    redis.call('PEXPIRE', fence, ARGV[2])
    return {'ok', rows}
  end
  if at and held[i] ~= 'done' and tonumber(at) == batch then counted = counted + count end
end
if not by_parts then counted = redis.call('SCARD', ids) end
if by_parts and counted ~= rows then return {'parts', counted} end
if ARGV[5] == '1' then
  redis.call('DEL', fence)
  redis.call('HSET', fence, 'done', ARGV[1] .. ' ' .. ARGV[3])
  redis.call('UNLINK', ids)
  redis.call('PEXPIRE', fence, ARGV[2])
end
return {'ok', counted}
