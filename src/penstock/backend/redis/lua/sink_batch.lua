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
local place, width, row = tonumber(ARGV[6]), tonumber(ARGV[7]), {'XADD', stream, '*'}
for i = 1, width do row[2 + 2 * i] = ARGV[7 + i] end
local names, places, at = {}, {}, 8 + width
while at <= #ARGV do
  if width > 0 then
    names[#names + 1], places[#places + 1] = ARGV[at + place - 1], at
    at = at + width
  else
    names[#names + 1], places[#places + 1] = ARGV[at], at + 1
    at = at + 2 + ARGV[at + 1]
  end
end
local function append(at)
  if width > 0 then
    for i = 1, width do row[3 + 2 * i] = ARGV[at + i - 1] end
    redis.call(unpack(row))
  else
    redis.call('XADD', stream, '*', unpack(ARGV, at + 1, at + ARGV[at]))
  end
end
local appended, step = 0, 1000 -- unpack can pass on some thousands
for start = 1, #names, step do
  local stop = math.min(start + step - 1, #names)
  local known, seen = redis.call('SMISMEMBER', ids, unpack(names, start, stop)), {}
  for i = 1, #known do
    local name = names[start + i - 1]
    if known[i] == 0 and not seen[name] then
      seen[name] = true
      append(places[start + i - 1])
      appended = appended + 1
    end
  end
  -- Rows first: Lua does not roll back, and an id that is noted without its row would be a row lost.
  redis.call('SADD', ids, unpack(names, start, stop))
end
-- The attempt can see by its number whether a server that was away still has what was confirmed.
redis.call('HSET', fence, 'at/' .. ARGV[4], ARGV[5])
redis.call('PEXPIRE', fence, ARGV[2])
redis.call('PEXPIRE', ids, ARGV[2])
return appended
