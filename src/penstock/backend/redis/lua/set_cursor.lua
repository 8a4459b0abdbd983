#!lua flags=allow-oom
-- Move a group up to where its reader, who keeps the position elsewhere, is done.
-- KEYS  stream
-- ARGV  group, entry id, how many entries were ever added up to it, the stream's epoch, the name of our own group
-- Gives 'ok', 'ahead' (it was there or further), 'shared' (somebody reads with the group), 'other' (not that stream).
-- Keeps it from going back, and from passing anything by on another stream of that name.
-- Uses: facts, less
local stream, group = KEYS[1], ARGV[1]
if redis.call('EXISTS', stream) == 0 then return 'other' end
local known, theirs = {}, nil
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local found = facts(row)
  known[found.name] = found
end
local held = false
if known[ARGV[5]] then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[5])) do
    if row[2] == 'epoch-' .. ARGV[4] then held = true end
  end
end
if not held then return 'other' end
theirs = known[group]
if not theirs then
  redis.call('XGROUP', 'CREATE', stream, group, ARGV[2], 'ENTRIESREAD', ARGV[3])
  return 'ok'
end
if theirs.consumers > 0 then return 'shared' end
if not less(theirs['last-delivered-id'], ARGV[2]) then return 'ahead' end
redis.call('XGROUP', 'SETID', stream, group, ARGV[2], 'ENTRIESREAD', ARGV[3])
return 'ok'
