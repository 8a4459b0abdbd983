#!lua flags=allow-oom
-- Make sure that a group marks where a reader that keeps its own position begins.
-- KEYS  stream
-- ARGV  group, where it begins if it is new: an entry id or '$', how many entries were ever added up to that id ('' to let
-- the server say so, of '0-0' and '$'), '1' to create the stream if need be
-- Gives where the group stands: id, how many were ever added up to it (-1 if the server has lost count), its consumers,
-- the entry next to that id on the older side ('' if none is there).
-- Keeps the first answer: whoever asks again, after whatever crash, is told the same place as long as nobody moved it.
-- Uses: facts
local stream, group = KEYS[1], ARGV[1]
local function stands()
  for _, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local found = facts(row)
    if found.name == group then return found end
  end
end
local found = stands()
if not found then
  local create = {'XGROUP', 'CREATE', stream, group, ARGV[2]}
  if ARGV[4] == '1' then create[6] = 'MKSTREAM' end
  local done = redis.pcall(unpack(create))
  if done.err then return done end
  local info = facts(redis.call('XINFO', 'STREAM', stream))
  local count = ARGV[3]
  if count == '' then count = string.format('%.0f', info['entries-added'] - (ARGV[2] == '$' and 0 or info.length)) end
  local id = ARGV[2] == '$' and info['last-generated-id'] or ARGV[2]
  -- Without the count the server could tell no lag once the group is behind.
  redis.call('XGROUP', 'SETID', stream, group, id, 'ENTRIESREAD', count)
  found = stands()
end
local id = found['last-delivered-id']
local before = redis.call('XREVRANGE', stream, id, '-', 'COUNT', 1)[1]
return {id, found['entries-read'] or -1, found.consumers, before and before[1] or ''}
