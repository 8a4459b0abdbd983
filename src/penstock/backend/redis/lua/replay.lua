#!lua
-- Give dead letters back to the group that gave them up.
-- KEYS  dead, retry, steals, groups
-- ARGV  group, field of the bookkeeping, the trail: how keys of records begin ('': none are kept), the lane, how long they
--       last in ms; the field in groups of the group on its retry stream; then per letter: its id, the bookkeeping, how
--       many words follow, and so many: the fields it is to have instead of its own; none, as a rule
-- Gives one verdict per letter: '' if it is on the retry stream now, 'gone', or why it could not be written there.
-- Keeps every letter in exactly one place: the copy, of the stored bytes themselves unless others are given, is on the
-- retry stream before the letter is deleted, in one step. One that cannot be written stays what it is and harms no other.
-- The group is noted, so that whoever looks for what waits finds it though the group was removed.
-- Uses: must_be
local dead, retry, group = KEYS[1], KEYS[2], ARGV[1]
for _, key in ipairs({dead, retry}) do must_be('stream', key) end
local prefix, lane, keep = ARGV[3], ARGV[4], ARGV[5]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, keep)
  redis.pcall('HDEL', record, 'cancel') -- that it was to end was said of what is over
end
local function ready()
  local known = redis.call('EXISTS', retry) == 1
  local created = redis.pcall('XGROUP', 'CREATE', retry, group, '0', 'MKSTREAM') -- BUSYGROUP, as a rule
  -- A new group on a stream that was there delivers again what readers of the old one may still hold.
  if known and not created.err then redis.call('DEL', KEYS[3]) end
  redis.pcall('HSETNX', KEYS[4], ARGV[6], '{}')
  return true
end
local is_ready, verdicts, i = false, {}, 7
while i <= #ARGV do
  local letter = redis.call('XRANGE', dead, ARGV[i], ARGV[i])[1]
  local verdict, words = 'gone', tonumber(ARGV[i + 2])
  if letter then
    is_ready = is_ready or ready()
    local copy = {'XADD', retry, '*'}
    for k = i + 3, i + 2 + words do copy[#copy + 1] = ARGV[k] end
    for k = 3, words == 0 and #letter[2] or 0 do copy[#copy + 1] = letter[2][k] end -- without the two that say why it died
    copy[#copy + 1], copy[#copy + 2] = ARGV[2], ARGV[i + 1]
    local added = redis.pcall(unpack(copy))
    verdict = type(added) == 'table' and added.err or ''
    if verdict == '' then
      trail(copy[4] == 'id' and copy[5] or copy[6] == 'job_id' and copy[7], 'retry ' .. lane .. ' ' .. added)
      redis.call('XDEL', dead, ARGV[i])
    end
  end
  verdicts[#verdicts + 1] = verdict
  i = i + 3 + words
end
return verdicts
