#!lua flags=allow-oom
-- Create a group that vanished, where the last look at it found everything settled.
-- KEYS  stream, steals, groups
-- ARGV  group, its field in groups, '1' to create the stream if need be, the name of our own group, and what the caller saw
--       when it last looked: the stream's epoch, the low-water mark, '1' if that entry was pending, the last one it was
--       given, how many it had read ('' if nobody knows), the newest that had been deleted by itself
-- Gives where the group starts (or stands, if it is there), and 1 if the stream is the one of that last look.
-- Keeps entries from being skipped: on another stream, or without a look, it starts at the beginning. Of a group that was
-- removed with its note, what the caller saw counts. Those who read for the earlier group are fenced: without their
-- counters, every settle of theirs looks at each entry. What is noted says where it stands now, so that the next look tells
-- what was trimmed meanwhile. If entries were deleted by themselves since the last look, nobody knows: what is done is
-- dropped from a lane, and may have been read since.
-- Uses: facts, less
local stream, group = KEYS[1], ARGV[1]
local text = redis.call('HGET', KEYS[3], ARGV[2])
local noted, note = pcall(cjson.decode, text or '')
if not text and ARGV[5] then
  note = {epoch = ARGV[5], low = ARGV[6], held = ARGV[7] == '1', last = ARGV[8], read = tonumber(ARGV[9]), told = ARGV[10]}
elseif not noted or type(note) ~= 'table' then
  note = {}
end
local stands, held = nil, 0
for _, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
  local found = facts(row)
  if found.name == group then
    stands = found['last-delivered-id']
  elseif found.name == ARGV[4] and note.epoch then
    for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[4])) do
      if consumer[2] == 'epoch-' .. note.epoch then held = 1 end
    end
  end
end
if stands then return {stands, held} end
local start = '0-0'
if held == 1 and note.held then
  -- The oldest entry that was pending must come again, and a group starts behind an entry.
  local before = redis.call('XREVRANGE', stream, '(' .. note.low, '-', 'COUNT', 1)[1]
  start = before and before[1] or '0-0'
elseif held == 1 then
  start = note.low
end
local create = {'XGROUP', 'CREATE', stream, group, start}
if ARGV[3] == '1' then create[6] = 'MKSTREAM' end
local whole = held == 1 and facts(redis.call('XINFO', 'STREAM', stream))
local is_told = whole and note.told and not less(note.told, whole['max-deleted-entry-id'])
local read = is_told and start == note.last and note.read or nil
local passed = whole and whole['entries-added'] - whole.length
if whole and not is_told and note.read and not less(note.last, whole['max-deleted-entry-id']) and passed > note.read
  and (whole.length == 0 or less(note.last, whole['recorded-first-entry-id'])) then
  -- What was deleted had been read: all that is gone behind that was trimmed.
  note.untold, note.from, read = (note.untold or 0) + passed - note.read, note.from or note.last, passed
end
if read then
  create[#create + 1] = 'ENTRIESREAD'
  create[#create + 1] = string.format('%.0f', read)
end
local created = redis.pcall(unpack(create))
if created.err then return created end
redis.call('DEL', KEYS[2])
if held == 1 then
  local next = redis.call('XRANGE', stream, '(' .. start, '+', 'COUNT', 1)[1]
  if not is_told then note.next = next and next[1] elseif note.held then note.next = note.low end
  note.told = whole['max-deleted-entry-id']
  note.back = whole['last-generated-id'] -- its readers may have been given more than was noted
  note.last, note.read, note.sure = start, read, note.sure and read ~= nil
  redis.call('HSET', KEYS[3], ARGV[2], cjson.encode(note))
end
return {start, held}
