#!lua flags=allow-oom
-- First command of a transaction that appends rows of a batch: let them in, or close the stream until sink_note.
-- KEYS  stream, valve, fence, set of the batch's ids
-- ARGV  batch, field of the fence, value to expect there ('' for none), how many rows, and if their ids are to be noted,
--       these in one word: each behind its length, four bytes, the lowest first
-- Keeps rows out unless the batch is not done, the fence holds the value and no id is known. A command that fails does
-- not stop a transaction, so each XADD is made to fail: behind the last possible id there is none. Nobody else sees
-- that. Whatever fails on the way to letting them in closes, because an error here would let them in.
-- Uses: facts
local stream, valve, fence, ids = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local kind = redis.call('TYPE', stream).ok
redis.pcall('DEL', valve) -- it is not there, unless a sink_note could not delete it
if kind ~= 'stream' and kind ~= 'none' then return end
local function let_in()
  if (redis.call('HGET', fence, ARGV[2]) or '') ~= ARGV[3] then return false end
  local done = string.match(redis.call('HGET', fence, 'done') or '', '^%d+')
  if done and tonumber(done) >= tonumber(ARGV[1]) then return false end
  -- In one word: as words of their own they would cost as much as a third of the rows.
  local given = ARGV[5] and {struct.unpack(string.rep('<I4c0', ARGV[4]), ARGV[5])} or {}
  given[#given] = nil -- the place behind them
  local known = ARGV[5] and redis.call('SMISMEMBER', ids, unpack(given)) or {}
  for i = 1, #known do
    if known[i] ~= 0 then return false end
  end
  redis.call('HSET', valve, 'state', 'open', 'was', redis.call('XLEN', stream))
  if ARGV[5] then redis.call('SADD', ids, unpack(given)) end
  return true
end
local _, are_in = pcall(let_in)
if are_in == true then return end
-- All that sink_note needs comes before the stream is closed: if it could not open it again, it would be closed to all.
if kind == 'none' then
  redis.call('DEL', stream)
  redis.call('HSET', valve, 'state', 'absent') -- what the rows make of it is deleted again
else
  local was = facts(redis.call('XINFO', 'STREAM', stream))['last-generated-id']
  redis.call('HSET', valve, 'state', 'closed', 'was', was)
  redis.call('HGET', valve, 'state')
  redis.call('XSETID', stream, '18446744073709551615-18446744073709551615')
end
