#!lua flags=allow-oom
-- Count what was removed before the group read it, and see whether the server lost what it read, right before it reads on.
-- KEYS  for each stream: the stream, its groups
-- ARGV  group, then for each stream: the group's field in groups, an entry it has read ('' if none is known)
-- Gives for each how many it counted, or -1 if it noted that the entry is gone and was not trimmed; the next watch tells of
-- both. -2: it could not look.
-- Keeps a loss from being passed by in silence: once the group has read on, the server's numbers may show no gap any more.
-- An entry as old as one that was deleted is no sign of a loss, and is not looked for: a lane of jobs deletes what is done,
-- and the server would go through all that it keeps of that.
-- Uses: facts, forgetful_run, less, trimmed_next
local group = ARGV[1]
local function place(stream)
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local found = facts(row)
    if found.name == group then return found['last-delivered-id'], found['entries-read'] or nil end
  end
end
local function look(stream, groups, field, witness)
  local whole = facts(redis.call('XINFO', 'STREAM', stream))
  local deleted, is_empty = whole['max-deleted-entry-id'], whole.length == 0
  local first = whole[is_empty and 'last-generated-id' or 'recorded-first-entry-id'] -- what lies before it is gone
  local text = redis.call('HGET', groups, field)
  if not text then return 0 end -- nobody watches
  -- A group that was moved back may stand before a gap that is older than what it has read.
  local is_back = string.find(text, '"back":"', 1, true)
  local is_gone, kept = witness ~= '' and less(deleted, witness), nil
  if is_gone then
    kept = redis.call('XREVRANGE', stream, witness, '-', 'COUNT', 1)[1]
    is_gone = not kept or kept[1] ~= witness
    if not is_gone and not is_back then return 0 end
  elseif (is_empty or witness == deleted) and witness ~= '' and not less(witness, first) and not is_back then
    return 0
  end
  local last, read = place(stream)
  local is_behind, is_before = last and less(last, first), last and less(last, deleted)
  if not is_gone and not is_behind and not is_before then return 0 end
  local noted, note = pcall(cjson.decode, text)
  if not noted or type(note) ~= 'table' then return 0 end
  if is_gone and (kept or whole.length == whole['entries-added']) then
    note.gone = type(note.gone) == 'table' and note.gone or {}
    note.gone[witness] = {kept and kept[1] or '0-0', deleted}
    redis.call('HSET', groups, field, cjson.encode(note))
    return -1
  end
  local missed, passed = 0, whole['entries-added'] - whole.length
  is_behind = is_behind and read ~= passed
  is_before = is_before and less(note.told or '0-0', deleted)
  if not is_behind and not is_before then return 0 end
  if is_behind then
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', passed))
    local run, is_forgotten = forgetful_run(note)
    if is_forgotten then read = last == note.last and note.read or nil end
    missed = read and math.max(0, passed - read) or 0
    note.run, note.read = run, last == note.last and passed or nil
    note.untold = (note.untold or 0) + missed
    if not read then note.skipped = trimmed_next(note, last, whole) or note.skipped end
  end
  -- What was deleted by itself is counted with the rest, or it is told of without a number.
  if missed == 0 and is_before then note.skipped = deleted end
  if missed > 0 or is_before then note.told = deleted end
  if missed > 0 or note.skipped then note.from = note.from or last end
  redis.call('HSET', groups, field, cjson.encode(note))
  return missed
end
local counted = {}
for i = 1, #KEYS / 2 do
  local fine, count = pcall(look, KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], ARGV[2 * i + 1])
  counted[i] = fine and count or -2
end
return counted
