#!lua flags=no-writes
-- See which of the entries that were once in a stream are not there any more.
-- KEYS  stream
-- ARGV  most bytes of entries to look at, then ids
-- Gives 1 for each that is gone and 0 for each that is there, in order; for fewer ids than asked about if the entries on
-- the way are large, but for one at least.
-- Keeps from copying entries to learn that they are there, where the stream's own numbers prove it: what once was there
-- is there still if it is not older than the first entry, and newer than all that were deleted one by one.
-- Uses: facts, less
local stream = KEYS[1]
local info = facts(redis.call('XINFO', 'STREAM', stream))
local first, deleted = info['recorded-first-entry-id'], info['max-deleted-entry-id']
local bytes, found = 0, {}
local function is_gone(id)
  if info.length == 0 or less(id, first) then return 1 end
  if less(deleted, id) then return 0 end
  local entry = redis.call('XRANGE', stream, id, id)[1]
  for _, value in ipairs(entry and entry[2] or {}) do bytes = bytes + #value end
  return entry and 0 or 1
end
for i = 2, #ARGV do
  if bytes > tonumber(ARGV[1]) then break end
  found[i - 1] = is_gone(ARGV[i])
end
return found
