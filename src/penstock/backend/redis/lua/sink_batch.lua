#!lua
-- Append the rows of a batch that were not appended before.
-- KEYS  stream, fence, set of the batch's ids
-- ARGV  batch, how long to remember in ms, '1' to create the stream if need be,
--       then per row: its id, how many fields and values, and these
-- Gives how many rows were appended, 'done', or 'missing' if there is no such stream.
-- Keeps every id once in its batch, in any order and by any number of writers, until the batch is done and after.
local stream, fence, ids = KEYS[1], KEYS[2], KEYS[3]
local kind = redis.call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end
if kind == 'none' and ARGV[3] ~= '1' then return 'missing' end
local done = redis.call('HGET', fence, 'done')
if done and tonumber(done) >= tonumber(ARGV[1]) then return 'done' end
local names, places, at = {}, {}, 4
while at <= #ARGV do
  names[#names + 1], places[#places + 1] = ARGV[at], at
  at = at + 2 + ARGV[at + 1]
end
local fresh, seen, step = {}, {}, 1000 -- unpack can pass on some thousands
for start = 1, #names, step do
  local stop = math.min(start + step - 1, #names)
  for i, known in ipairs(redis.call('SMISMEMBER', ids, unpack(names, start, stop))) do
    local name = names[start + i - 1]
    if known == 0 and not seen[name] then
      seen[name] = true
      fresh[#fresh + 1] = name
      local place = places[start + i - 1]
      redis.call('XADD', stream, '*', unpack(ARGV, place + 2, place + 1 + ARGV[place + 1]))
    end
  end
end
for start = 1, #fresh, step do
  redis.call('SADD', ids, unpack(fresh, start, math.min(start + step - 1, #fresh)))
end
redis.call('PEXPIRE', ids, ARGV[2])
return #fresh
