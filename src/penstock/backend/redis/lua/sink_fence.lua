#!lua
-- Append rows of one part of a batch, if this attempt still is the one that writes it.
-- KEYS  stream, fence
-- ARGV  part, batch, value to expect, value to leave, how long to remember in ms, '1' to create the stream if need be,
--       how many names all rows have in common, these, then name by name the values of all rows; if 0, instead per row
--       how many fields and values it has, and these
-- Gives 'ok', 'done', 'fenced', {'ahead', batch} if a newer batch is done, or 'missing' if there is no such stream.
-- Keeps rows and fence together: the value says how many rows of the part are in the stream, at any moment.
-- Uses: must_be
local stream, fence, part = KEYS[1], KEYS[2], ARGV[1]
local kind = must_be('stream', stream)
if kind == 'none' and ARGV[6] ~= '1' then return 'missing' end
local held = redis.call('HMGET', fence, 'done', part)
local done, batch = string.match(held[1] or '', '^%d+'), tonumber(ARGV[2])
if done and tonumber(done) > batch then return {'ahead', done} end
if done and tonumber(done) == batch then return 'done' end
if held[2] ~= ARGV[3] then return 'fenced' end
local call, given, count = redis.call, ARGV, #ARGV -- locals: a lookup per word would cost as much as the append
local width, at = tonumber(given[7]), 8 + given[7]
if width > 0 then
  -- A function made for so many fields: a list of words filled and unpacked per row would cost a tenth of it all.
  local rows, names, values = (count - at + 1) / width, {}, {}
  for i = 1, width do
    names[i], values[i] = 'n' .. i, string.format('n%d, given[at + %d]', i, (i - 1) * rows)
  end
  local text = 'local call, stream, given, first, last, %s = ... for at = first, last do call("XADD", stream, "*", %s) end'
  local append = loadstring(string.format(text, table.concat(names, ', '), table.concat(values, ', ')), 'append')
  append(call, stream, given, at, at + rows - 1, unpack(given, 8, 7 + width))
end
while width == 0 and at <= count do
  local last = at + given[at]
  call('XADD', stream, '*', unpack(given, at + 1, last))
  at = last + 1
end
redis.call('HSET', fence, part, ARGV[4])
redis.call('PEXPIRE', fence, ARGV[5])
return 'ok'
