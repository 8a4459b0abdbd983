#!lua
-- Append the rows of a batch that were not appended before.
-- KEYS  stream, fence, set of the batch's ids
-- ARGV  batch, how long to remember in ms, '1' to create the stream if need be, token of the attempt, number of its
--       request, which of the values is the id, how many names all rows have in common, these, then per row the values;
--       if 0, per row instead its id, how many fields and values it has, and these
-- Gives how many rows were appended; 'done'; {'ahead', batch} if a newer batch is done; 'missing' if there is no such
-- stream.
-- Keeps every id once in its batch, in any order and by any number of writers, until the batch is done and after.
local stream, fence, ids = KEYS[1], KEYS[2], KEYS[3]
local kind = redis.call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end
if kind == 'none' and ARGV[3] ~= '1' then return 'missing' end
local done, batch = string.match(redis.call('HGET', fence, 'done') or '', '^%d+'), tonumber(ARGV[1])
if done and tonumber(done) > batch then return {'ahead', done} end
if done and tonumber(done) == batch then return 'done' end
local call, given, count = redis.call, ARGV, #ARGV -- locals: a lookup per word would cost as much as the append
local place, width = tonumber(given[6]), tonumber(given[7])
local names, places, rows, at = {}, {}, 0, 8 + width
while at <= count do
  rows = rows + 1
  if width > 0 then
    names[rows], places[rows] = given[at + place - 1], at
    at = at + width
  else
    names[rows], places[rows] = given[at], at + 1
    at = at + 2 + given[at + 1]
  end
end
local function append(at) call('XADD', stream, '*', unpack(given, at + 1, at + given[at])) end
if width > 0 then
  -- A function made for so many fields: a list of words filled and unpacked per row would cost a tenth of it all.
  local words, values = {}, {}
  for i = 1, width do
    words[i], values[i] = 'n' .. i, 'n' .. i .. ', given[at + ' .. i - 1 .. ']'
  end
  local text = 'local call, stream, given, %s = ... return function(at) call("XADD", stream, "*", %s) end'
  local make = loadstring(string.format(text, table.concat(words, ', '), table.concat(values, ', ')), 'append')
  append = make(call, stream, given, unpack(given, 8, 7 + width))
end
local appended, step = 0, 1000 -- unpack can pass on some thousands
for start = 1, rows, step do
  local stop = math.min(start + step - 1, rows)
  local known, seen = call('SMISMEMBER', ids, unpack(names, start, stop)), {}
  for i = 1, #known do
    local name = names[start + i - 1]
    if known[i] == 0 and not seen[name] then
      seen[name] = true
      append(places[start + i - 1])
      appended = appended + 1
    end
  end
  -- Rows first: Lua does not roll back, and an id that is noted without its row would be a row lost.
  call('SADD', ids, unpack(names, start, stop))
end
-- The attempt can see by its number whether a server that was away still has what was confirmed.
redis.call('HSET', fence, 'at/' .. ARGV[4], ARGV[5])
redis.call('PEXPIRE', fence, ARGV[2])
redis.call('PEXPIRE', ids, ARGV[2])
return appended
