#!lua flags=allow-oom
-- Count what was removed before the group read it, and see whether the server lost what it read, right before it reads on.
-- KEYS  stream, groups
-- ARGV  group, its field in groups, an entry the group has read ('' if none is known)
-- Gives how many it counted, or -1 if it noted that the entry is gone and was not trimmed; the next watch tells of both.
-- Keeps a loss from being passed by in silence: once the group has read on, the server's numbers may show no gap any more.
-- An entry as old as one that was deleted is no sign of a loss: a lane of jobs deletes what is done, and would be noted for ever.
local stream, group = KEYS[1], ARGV[1]
local kept = ARGV[3] ~= '' and redis.call('XREVRANGE', stream, ARGV[3], '-', 'COUNT', 1)[1]
if kept and kept[1] == ARGV[3] then return 0 end
local noted, note = pcall(cjson.decode, redis.call('HGET', KEYS[2], ARGV[2]) or '')
if not noted or type(note) ~= 'table' then return 0 end -- nobody watches
local function less(a, b) -- as digit strings: doubles lose the low digits of 64-bit ids
  local left, right = {string.match(a, '^(%d+)-(%d+)$')}, {string.match(b, '^(%d+)-(%d+)$')}
  for i = 1, 2 do
    if #left[i] ~= #right[i] then return #left[i] < #right[i] end
    if left[i] ~= right[i] then return left[i] < right[i] end
  end
  return false
end
local whole = {}
local info = redis.call('XINFO', 'STREAM', stream)
for i = 1, #info, 2 do whole[info[i]] = info[i + 1] end
local deleted = whole['max-deleted-entry-id']
if ARGV[3] ~= '' and (kept or whole.length == whole['entries-added']) and less(deleted, ARGV[3]) then
  note.gone = type(note.gone) == 'table' and note.gone or {}
  note.gone[ARGV[3]] = {kept and kept[1] or '0-0', deleted}
  redis.call('HSET', KEYS[2], ARGV[2], cjson.encode(note))
  return -1
end
if kept or whole.length == 0 then return 0 end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local found = {}
  for i = 1, #row, 2 do found[row[i]] = row[i + 1] end
  local last = found['last-delivered-id']
  if found.name == group and #redis.call('XRANGE', stream, '-', last, 'COUNT', 1) == 0 then
    local passed = whole['entries-added'] - whole.length
    if found['entries-read'] == passed then return 0 end
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', passed))
    local read = found['entries-read'] or nil
    local server = redis.pcall('INFO', 'server')
    local run = type(server) == 'string' and string.match(server, 'redis_version:7%.0.*run_id:(%x+)') or nil
    -- As in watch: what this server forgot at a restart that it had counted was read, and not missed.
    if run and note.run and note.run ~= run then read = last == note.last and note.read or nil end
    local missed = read and math.max(0, passed - read) or 0
    note.run, note.read = run, last == note.last and passed or nil
    note.untold = (note.untold or 0) + missed
    redis.call('HSET', KEYS[2], ARGV[2], cjson.encode(note))
    return missed
  end
end
return 0
