#!lua flags=allow-oom
-- Have a group go on behind another entry.
-- KEYS  stream, steals, groups, turn
-- ARGV  group, its field in groups, the entry id, how many of all entries ever added lie up to there ('': the caller does
--       not know), the name of our own group
-- Gives 2 if it was moved, 1 if it was and nobody knows how much lies up to there, 0 if it belongs to a sequential reader,
-- whose position is elsewhere, or the stream's last id if that is before the place: what comes before the place would pass
-- the group by, and would be trimmed as if it was settled.
-- Keeps those who read for it from acking what is now delivered anew: without their counters, every settle of theirs looks
-- at each entry. What was noted of its position moves in the same step, and all else that was noted stays: a group that
-- vanishes next is made where it was moved to, and what it had missed is told.
-- Uses: facts, forgetful_run, less, trimmed_next
if redis.call('HEXISTS', KEYS[4], 'epoch') == 1 then return 0 end
local text = redis.call('HGET', KEYS[3], ARGV[2]) -- before anything is changed: it may be a key of another type
local noted, note = pcall(cjson.decode, text or '')
if not noted or type(note) ~= 'table' then note = {} end
local rows = redis.pcall('XINFO', 'STREAM', KEYS[1])
if rows.err then return rows end
local info = facts(rows)
local stood, counted, is_same_stream = nil, nil, false
for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local found = facts(row)
  if found.name == ARGV[1] then
    stood, counted = found['last-delivered-id'], found['entries-read'] or nil
  elseif found.name == ARGV[5] and note.epoch then
    for _, consumer in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[5])) do
      if facts(consumer).name == 'epoch-' .. note.epoch then is_same_stream = true end
    end
  end
end
local last, place = info['last-generated-id'], ARGV[3]
if less(last, place) then return last end
-- From how many it was given, others tell later whether it missed any.
local first, deleted = info['recorded-first-entry-id'], info['max-deleted-entry-id']
local passed = info['entries-added'] - info.length
local move, read = {'XGROUP', 'SETID', KEYS[1], ARGV[1], place}, tonumber(ARGV[4])
if place == last then
  read = info['entries-added']
elseif info.length == 0 or less(place, first) then
  read = passed
elseif place == first then
  read = passed + 1
end
read = read and math.min(read, info['entries-added'])
if read then move[6], move[7] = 'ENTRIESREAD', string.format('%.0f', read) end
local moved = redis.pcall(unpack(move))
if moved.err then return moved end
redis.call('DEL', KEYS[2])
if is_same_stream then
  local run, is_forgotten = forgetful_run(note)
  if is_forgotten then counted = stood == note.last and note.read or nil end
  -- The next watch tells what it has missed, and from where on: the server's numbers show no gap any more.
  local skipped
  if counted and counted < passed and (info.length == 0 or less(stood, first)) then
    note.untold, note.from, note.told = (note.untold or 0) + passed - counted, note.from or stood, deleted
  elseif less(stood, deleted) and not less(place, deleted) and less(note.told, deleted) then
    skipped = deleted
  elseif not counted then
    skipped = trimmed_next(note, stood, info)
  end
  if skipped then note.skipped, note.from = skipped, note.from or stood end
  if less(place, stood) and less(note.back or '0-0', stood) then note.back = stood end
  local next = not read and redis.call('XRANGE', KEYS[1], '(' .. place, '+', 'COUNT', 1)[1]
  note.run, note.next = run, next and next[1] or nil
  local oldest = redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1)[1]
  local held = oldest ~= nil and not less(place, oldest[1])
  note.low, note.held, note.last, note.read, note.sure = held and oldest[1] or place, held, place, read, read ~= nil
  if not less(stood, deleted) then note.told = deleted end -- it had read that
  redis.call('HSET', KEYS[3], ARGV[2], cjson.encode(note))
end
return read and 2 or 1
