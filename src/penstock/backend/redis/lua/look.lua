#!lua flags=allow-oom
-- Count what was removed before the group read it, and see whether the server lost what it read, right before it reads on.
-- KEYS  for each stream: the stream, its groups
-- ARGV  group, then for each stream: the group's field in groups, an entry it has read ('' if none is known)
-- Gives for each how many it counted, or -1 if it noted that the entry is gone and was not trimmed; the next watch tells of
-- both. -2: it could not look.
-- Keeps a loss from being passed by in silence: once the group has read on, the server's numbers may show no gap any more.
-- An entry as old as one that was deleted is no sign of a loss, and is not looked for: a lane of jobs deletes what is done,
-- and the server would go through all that it keeps of that.
-- Uses: facts, forgetful_run, less
local group = ARGV[1]
local function look(stream, groups, field, witness)
  local whole = facts(redis.call('XINFO', 'STREAM', stream))
  local first, deleted = whole['recorded-first-entry-id'], whole['max-deleted-entry-id']
  local may_be_gone, kept = witness ~= '' and less(deleted, witness), nil
  if may_be_gone then
    kept = redis.call('XREVRANGE', stream, witness, '-', 'COUNT', 1)[1]
    if kept and kept[1] == witness then return 0 end
  elseif whole.length == 0 or witness ~= '' and not less(witness, first) then
    return 0
  end
  local noted, note = pcall(cjson.decode, redis.call('HGET', groups, field) or '')
  if not noted or type(note) ~= 'table' then return 0 end -- nobody watches
  if may_be_gone and (kept or whole.length == whole['entries-added']) then
    note.gone = type(note.gone) == 'table' and note.gone or {}
    note.gone[witness] = {kept and kept[1] or '0-0', deleted}
    redis.call('HSET', groups, field, cjson.encode(note))
    return -1
  end
  if whole.length == 0 then return 0 end
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local found = facts(row)
    local last = found['last-delivered-id']
    if found.name == group and less(last, first) then
      local passed = whole['entries-added'] - whole.length
      if found['entries-read'] == passed then return 0 end
      redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', passed))
      local read = found['entries-read'] or nil
      local run, is_forgotten = forgetful_run(note)
      if is_forgotten then read = last == note.last and note.read or nil end
      local missed = read and math.max(0, passed - read) or 0
      note.run, note.read = run, last == note.last and passed or nil
      note.untold = (note.untold or 0) + missed
      redis.call('HSET', groups, field, cjson.encode(note))
      return missed
    end
  end
  return 0
end
local counted = {}
for i = 1, #KEYS / 2 do
  local fine, count = pcall(look, KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 * i], ARGV[2 * i + 1])
  counted[i] = fine and count or -2
end
return counted
