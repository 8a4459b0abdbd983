#!lua
-- Append the rows of a batch that were not appended before.
-- KEYS  stream, fence, set of the batch's ids
-- ARGV  batch, how long to remember in ms, '1' to create the stream if need be, token of the attempt, number of its
--       request, how many rows, their ids in one word, each behind its length, four bytes, the lowest first, how many
--       names all rows have in common, these, then name by name the values of all rows; if 0, instead per row how many
--       fields and values it has, and these. No id comes twice.
-- Gives how many rows were appended; 'done'; {'ahead', batch} if a newer batch is done; 'missing' if there is no such
-- stream.
-- Keeps every id once in its batch, in any order and by any number of writers, until the batch is done and after.
-- Uses: must_be
local stream, fence, ids = KEYS[1], KEYS[2], KEYS[3]
local kind = must_be('stream', stream)
if kind == 'none' and ARGV[3] ~= '1' then return 'missing' end
local done, batch = string.match(redis.call('HGET', fence, 'done') or '', '^%d+'), tonumber(ARGV[1])
if done and tonumber(done) > batch then return {'ahead', done} end
if done and tonumber(done) == batch then return 'done' end
local call, given = redis.call, ARGV -- locals: a lookup per word would cost as much as the append
local rows, width, at = tonumber(given[6]), tonumber(given[8]), 9 + given[8]
local append
if width > 0 then
  -- A function made for so many fields: a list of words filled and unpacked per row would cost a tenth of it all.
  local words, values = {}, {}
  for i = 1, width do
    words[i], values[i] = 'n' .. i, string.format('n%d, given[row + %d]', i, at - 1 + (i - 1) * rows)
  end
  local text = 'local call, stream, given, %s = ... return function(row) call("XADD", stream, "*", %s) end'
  local make = loadstring(string.format(text, table.concat(words, ', '), table.concat(values, ', ')), 'append')
  append = make(call, stream, given, unpack(given, 9, 8 + width))
else
  local places, place_of = {}, at
  for row = 1, rows do
    places[row] = place_of
    place_of = place_of + 1 + given[place_of]
  end
  append = function(row)
    local first = places[row]
    call('XADD', stream, '*', unpack(given, first + 1, first + given[first]))
  end
end
local appended, step, next_id = 0, 1000, 1 -- unpack can pass on some thousands
for start = 1, rows, step do
  local those = {struct.unpack(string.rep('<I4c0', math.min(step, rows - start + 1)), given[7], next_id)}
  next_id = table.remove(those) -- the place behind them
  local known = call('SMISMEMBER', ids, unpack(those))
  for i = 1, #known do
    if known[i] == 0 then
      append(start + i - 1)
      appended = appended + 1
    end
  end
  -- Rows first: Lua does not roll back, and an id that is noted without its row would be a row lost.
  call('SADD', ids, unpack(those))
end
-- The attempt can see by its number whether a server that was away still has what was confirmed.
redis.call('HSET', fence, 'at/' .. ARGV[4], ARGV[5])
redis.call('PEXPIRE', fence, ARGV[2])
redis.call('PEXPIRE', ids, ARGV[2])
return appended
