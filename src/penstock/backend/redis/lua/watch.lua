#!lua flags=allow-oom
-- See how a group stands on a stream, and what became of both since the last look.
-- KEYS  stream, groups, paused
-- ARGV  group, its field in groups, a token of this call's own, the name of our own group, an entry that was there ('' if
--       none is known), the epoch of its stream
-- Gives, by name: what the server knows now ('' or left out: there is none), `was_*` from the note of the last look, and
-- what it comes to: lag (exact or not), how many unread entries are newly missed, the last one deleted unread, and, if the
-- server lost an entry that was there, that one and the newest before it that is there (0-0: none).
-- Keeps each loss from being told twice: what is missed is counted as read in the same step, by the server's own counter.
-- A call that is sent again with its token is told once more what the first one found.
-- Uses: facts, forgetful_run, less, trimmed_next
local stream, group = KEYS[1], ARGV[1]
local function listed(found)
  local flat = {}
  for name, value in pairs(found) do
    flat[#flat + 1] = name
    flat[#flat + 1] = type(value) == 'number' and string.format('%.0f', value) or value
  end
  return flat
end
local result = {paused = redis.call('SISMEMBER', KEYS[3], group)}
local noted, note = pcall(cjson.decode, redis.call('HGET', KEYS[2], ARGV[2]) or '')
if not noted or type(note) ~= 'table' then note = {} end
result.was_epoch, result.was_low, result.was_last = note.epoch, note.low, note.last
if redis.call('EXISTS', stream) == 0 then return listed(result) end

local ours, theirs
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local found = facts(row)
  if found.name == ARGV[4] then ours = true elseif found.name == group then theirs = found end
end
local epoch
if ours then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[4])) do
    epoch = epoch or string.match(facts(row).name, '^epoch%-(%x+)$')
  end
else
  -- At the largest id it reads nothing, and holds back nobody who looks for the slowest group.
  redis.call('XGROUP', 'CREATE', stream, ARGV[4], '18446744073709551615-18446744073709551615')
end
if not epoch then
  epoch = ARGV[3]
  redis.call('XGROUP', 'CREATECONSUMER', stream, ARGV[4], 'epoch-' .. epoch)
end
local info = facts(redis.call('XINFO', 'STREAM', stream))
local first, top, deleted = info['recorded-first-entry-id'], info['last-generated-id'], info['max-deleted-entry-id']
local length, added = info.length, info['entries-added']
result.epoch, result.first, result.top, result.length, result.added = epoch, first, top, length, added
result.deleted = deleted
result.newest = length > 0 and info['last-entry'][1] or nil
-- An entry that is gone, which nobody deleted, while older ones are there, which trimming would have taken first: the
-- server has fallen back behind it. Told once, by whoever looks first; what is told is the largest range that is known.
local told = note.epoch == epoch and note.lost or '0-0'
local function fell_back(lost, kept, deleted_then)
  if less(deleted_then, lost) and less(told, lost) then
    if not result.lost or less(result.lost, lost) then result.lost = lost end
    if not result.kept or less(kept, result.kept) then result.kept = kept end
  end
end
local witness = ARGV[6] == epoch and ARGV[5] or ''
if witness ~= '' then
  local kept = redis.call('XREVRANGE', stream, witness, '-', 'COUNT', 1)[1]
  kept = kept and kept[1]
  if kept ~= witness and (kept or length == added or less(top, witness)) then
    fell_back(witness, kept or '0-0', deleted)
  end
end
if note.epoch == epoch and type(note.gone) == 'table' then
  for lost, seen in pairs(note.gone) do fell_back(lost, seen[1], seen[2]) end
end
if not theirs then return listed(result) end

local last, read = theirs['last-delivered-id'], theirs['entries-read'] or nil
local oldest = theirs.pending > 0 and redis.call('XPENDING', stream, group, '-', '+', 1)[1][1]
local known = note.epoch == epoch and not less(last, note.last) -- else the group, or the stream, is another one
-- How many of the entries that are there the group has not read; nil where the server does not tell.
local unread
if length == 0 or not less(last, top) then
  unread = 0
elseif less(last, first) then
  unread = length
elseif last == first then
  unread = length - 1
end
local missed, sure, next = 0, false, nil
local unseen = known and (note.skipped or trimmed_next(note, last, info)) or nil
-- What the server may have forgotten is what we noted, if the group has read nothing since, else unknown.
local run, is_forgotten = forgetful_run(note)
if is_forgotten and note.epoch == epoch and last == note.last and note.read then
  if read ~= note.read then
    read = note.read
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', read))
  end
  is_forgotten = false
end
if unread then
  -- Only while nothing is left that the group has read: trimming goes from the oldest on, so no unread entry was trimmed
  -- before. What the counter lacks then, it lost itself, unless the server did at a restart.
  if read and not is_forgotten and (length == 0 or less(last, first)) then missed = math.max(0, added - unread - read) end
  is_forgotten = false
  if read ~= added - unread then
    redis.call('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', added - unread))
    read = added - unread
  end
  sure, result.lag, result.exact = true, unread, 1
elseif read then
  -- Some servers count too few as read where unread entries were removed and then passed by.
  local was_sure = known and note.sure and not less(note.last, first) and not less(note.last, deleted)
  sure = not is_forgotten and (added == length or was_sure)
  if not less(last, deleted) then result.lag, result.exact = math.min(added - read, length), sure and 1 or 0 end
end
if not unread and (is_forgotten or not read) then
  -- While nobody can count what will be lost, this one can still be missed.
  next = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
  next = next and next[1]
end
result.next = next
if known and less(last, deleted) and less(note.told, deleted) and missed == 0 then unseen = deleted end
missed = missed + (note.untold or 0)
if missed > 0 or unseen then result.since = note.from or note.last end
if known and note.token == ARGV[3] then
  missed, unseen = missed + note.missed, unseen or note.unseen
  result.was_epoch, result.was_low, result.was_last = note.was, note.was_low, note.was_last
  result.since = note.since or result.since
  if note.just then result.lost, result.kept = result.lost or note.lost, result.kept or note.kept end
end
-- A group that was moved back stands before what it holds.
local held = oldest and not less(last, oldest)
result.last, result.read, result.pending, result.low = last, read, theirs.pending, held and oldest or last
result.missed, result.unseen, result.held = missed, unseen, held and 1 or 0
redis.call('HSET', KEYS[2], ARGV[2], cjson.encode({
  epoch = epoch, low = result.low, held = held and true or false, last = last, sure = sure, told = deleted,
  run = is_forgotten and (note.run or '') or run, read = not is_forgotten and read or nil,
  next = next, back = known and note.back and less(last, note.back) and note.back or nil,
  token = ARGV[3], missed = missed, unseen = unseen,
  was = result.was_epoch, was_low = result.was_low, was_last = result.was_last, since = result.since,
  lost = result.lost or told, kept = result.kept, just = result.lost and true or false,
}))
return listed(result)
