#!lua flags=allow-oom
-- Count what was removed before the group read it, right before the group reads on.
-- KEYS  stream, groups
-- ARGV  group, its field in groups, an entry the group has read ('' if none is known)
-- Gives how many it counted; the next watch tells of them.
-- Keeps a loss from being passed by in silence: once the group has read on, the server's numbers may show no gap any more.
local stream, group = KEYS[1], ARGV[1]
if redis.call('XLEN', stream) == 0 then return 0 end
if ARGV[3] ~= '' and #redis.call('XRANGE', stream, '-', ARGV[3], 'COUNT', 1) > 0 then return 0 end
local noted, note = pcall(cjson.decode, redis.call('HGET', KEYS[2], ARGV[2]) or '')
if not noted or type(note) ~= 'table' then return 0 end -- nobody watches
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local found = {}
  for i = 1, #row, 2 do found[row[i]] = row[i + 1] end
  local last = found['last-delivered-id']
  if found.name == group and #redis.call('XRANGE', stream, '-', last, 'COUNT', 1) == 0 then
    local info = redis.call('XINFO', 'STREAM', stream)
    for i = 1, #info, 2 do found[info[i]] = info[i + 1] end
    local passed = found['entries-added'] - found.length
    if found.length == 0 or found['entries-read'] == passed then return 0 end
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', passed))
    local missed = found['entries-read'] and math.max(0, passed - found['entries-read']) or 0
    note.untold = (note.untold or 0) + missed
    redis.call('HSET', KEYS[2], ARGV[2], cjson.encode(note))
    return missed
  end
end
return 0
