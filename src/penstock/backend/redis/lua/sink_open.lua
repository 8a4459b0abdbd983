#!lua flags=allow-oom
-- First command of a transaction that appends rows of a batch: let them in, or close the stream until sink_note.
-- KEYS  stream, valve, fence, set of the batch's ids
-- ARGV  batch, field of the fence, value to expect there ('' for none), then the ids of the rows, to be noted if all
--       are new
-- Keeps rows out unless the batch is not done, the fence holds the value and no id is known. A command that fails does
-- not stop a transaction, so each XADD is made to fail: behind the last possible id there is none. Nobody else sees
-- that. Whatever cannot be read closes, because an error here would let the rows in.
local stream, valve, fence, ids = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local kind = redis.call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then return end
local function are_wanted()
  local held = redis.pcall('HMGET', fence, 'done', ARGV[2])
  if held.err or (held[2] or '') ~= ARGV[3] then return false end
  local done = string.match(held[1] or '', '^%d+')
  if done and tonumber(done) >= tonumber(ARGV[1]) then return false end
  if #ARGV == 3 then return true end
  local known = redis.pcall('SMISMEMBER', ids, unpack(ARGV, 4))
  if known.err then return false end
  for i = 1, #known do
    if known[i] ~= 0 then return false end
  end
  return true
end
if are_wanted() then
  redis.call('SET', valve, 'open ' .. redis.call('XLEN', stream))
  if #ARGV > 3 then redis.call('SADD', ids, unpack(ARGV, 4)) end
elseif kind == 'none' then
  redis.call('DEL', stream) -- may we? Else this is where to fail, not in sink_note
  redis.call('SET', valve, 'absent') -- and what the rows make of it is deleted again
else
  local facts = redis.call('XINFO', 'STREAM', stream)
  for i = 1, #facts, 2 do
    if facts[i] == 'last-generated-id' then redis.call('SET', valve, 'closed ' .. facts[i + 1]) end
  end
  redis.call('XSETID', stream, '18446744073709551615-18446744073709551615')
end
