#!lua
-- Append rows under the entry ids they come with.
-- KEYS  stream
-- ARGV  '1' to create the stream if need be, then per row, ids rising: entry id, how many fields and values, and these
-- Gives how many rows were appended; 'missing' if there is no such stream; or, for the first row that cannot be placed
-- and with nothing written, {'absent', id} (the stream is past it and lacks it) or {'other', id} (another row has it).
-- Keeps a row from being written twice or dropped: an id that is not new must hold the very same row.
-- Uses: facts, less, must_be
local stream = KEYS[1]
local kind = must_be('stream', stream)
if kind == 'none' and ARGV[1] ~= '1' then return 'missing' end
local newest = '0-0'
if kind == 'stream' then
  newest = facts(redis.call('XINFO', 'STREAM', stream))['last-generated-id']
end
local function differs(fields, first, count)
  if #fields ~= count then return true end
  for i = 1, count do
    if fields[i] ~= ARGV[first + i] then return true end
  end
  return false
end
local at, written = 2, 0
while at <= #ARGV do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  if less(newest, id) then
    redis.call('XADD', stream, id, unpack(ARGV, at + 2, at + 1 + count))
    written = written + 1
  else
    local found = redis.call('XRANGE', stream, id, id)[1]
    if not found then return {'absent', id} end
    if differs(found[2], at + 1, count) then return {'other', id} end
  end
  at = at + 2 + count
end
return written
