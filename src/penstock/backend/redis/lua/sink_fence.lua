#!lua
-- Append rows of one part of a batch, if this attempt still is the one that writes it.
-- KEYS  stream, fence
-- ARGV  part, batch, value to expect, value to leave, how long to remember in ms, '1' to create the stream if need be,
--       how many names all rows have in common, these, then per row the values; if 0, per row instead how many fields
--       and values it has, and these
-- Gives 'ok', 'done', 'fenced', {'ahead', batch} if a newer batch is done, or 'missing' if there is no such stream.
-- Keeps rows and fence together: the value says how many rows of the part are in the stream, at any moment.
local stream, fence, part = KEYS[1], KEYS[2], ARGV[1]
local kind = redis.call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end
if kind == 'none' and ARGV[6] ~= '1' then return 'missing' end
local held = redis.call('HMGET', fence, 'done', part)
local done, batch = string.match(held[1] or '', '^%d+'), tonumber(ARGV[2])
if done and tonumber(done) > batch then return {'ahead', done} end
if done and tonumber(done) == batch then return 'done' end
if held[2] ~= ARGV[3] then return 'fenced' end
local call, given, count = redis.call, ARGV, #ARGV -- locals: a lookup per word would cost as much as the append
local width, row = tonumber(given[7]), {'XADD', stream, '*'}
for i = 1, width do row[2 + 2 * i] = given[7 + i] end
local at, size = 8 + width, 3 + 2 * width
while at <= count do
  if width > 0 then
    for i = 1, width do row[3 + 2 * i] = given[at + i - 1] end
    call(unpack(row, 1, size))
    at = at + width
  else
    local last = at + given[at]
    call('XADD', stream, '*', unpack(given, at + 1, last))
    at = last + 1
  end
end
redis.call('HSET', fence, part, ARGV[4])
redis.call('PEXPIRE', fence, ARGV[5])
return 'ok'
