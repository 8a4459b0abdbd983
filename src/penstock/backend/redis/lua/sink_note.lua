#!lua flags=allow-oom
-- Last command of a transaction that appends rows of a batch: note that they are there, or open the stream again.
-- KEYS  stream, valve, fence, set of the batch's ids
-- ARGV  field of the fence, value to leave there, how long to remember in ms, how many rows, and if their ids are noted,
--       these in one word: each behind its length, four bytes, the lowest first
-- Keeps rows and what is noted of them together, at any moment: nothing stays noted unless every row came. And a stream
-- that sink_open closed is as it was before: that comes first, and uses no right that sink_open has not used.
local stream, valve, fence, ids = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local state, was = redis.call('HGET', valve, 'state'), redis.call('HGET', valve, 'was')
if state == 'closed' then redis.call('XSETID', stream, was) end
if state == 'absent' then redis.call('DEL', stream) end
redis.pcall('DEL', valve)
if state ~= 'open' then return end
if redis.call('XLEN', stream) - was ~= tonumber(ARGV[4]) then
  if not ARGV[5] then return end
  local given = {struct.unpack(string.rep('<I4c0', ARGV[4]), ARGV[5])}
  given[#given] = nil -- the place behind them
  redis.call('SREM', ids, unpack(given))
  return
end
if ARGV[5] then redis.call('PEXPIRE', ids, ARGV[3]) end
redis.call('HSET', fence, ARGV[1], ARGV[2])
redis.call('PEXPIRE', fence, ARGV[3])
