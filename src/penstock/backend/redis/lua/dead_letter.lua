#!lua
-- Move entries to the dead letters.
-- KEYS  stream, dead, starts, groups
-- ARGV  group, consumer, '1' if it is a retry stream: delete them there too, the trail: how keys of records begin ('': none
--       are kept), the lane, how long they last in ms; then per entry: id, number of fields and values, these
-- Gives how many were moved, how many were gone, and the ids that others hold.
-- Keeps a message from being lost on its way: the copy is written before the entry is released, in one step. An entry
-- that is pending but was trimmed or deleted belongs to nobody who could still handle it, so anyone may report it. If a
-- retry stream was deleted, and perhaps made again, whoever still has a delivery of it in hand has the last copy: that
-- is stored all the same.
-- Uses: must_be
local stream, dead, group, me = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
for i, right in ipairs({'stream', 'stream', 'hash', 'hash'}) do must_be(right, KEYS[i]) end
local prefix, lane, keep = ARGV[4], ARGV[5], ARGV[6]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, keep)
end
local where = ARGV[3] == '1' and 'retry/' or 'topic/'
local orphaned, born = false, 0
if ARGV[3] == '1' then
  local found = redis.pcall('XPENDING', stream, group)
  if found.err and not string.find(found.err, '^NOGROUP') then return found end
  orphaned, born = found.err ~= nil, tonumber(redis.call('HGET', KEYS[4], 'born/' .. group) or 0)
end
local function holding(id)
  if orphaned then return {id, me} end
  local row = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not row and tonumber(string.match(id, '^%d+')) < born then return {id, me} end
  return row
end
local moved, gone, fenced, at = 0, 0, {}, 7
while at <= #ARGV do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  local row = holding(id)
  if not row then
    gone = gone + 1
  elseif row[2] ~= me and #redis.call('XRANGE', stream, id, id) > 0 then
    fenced[#fenced + 1] = id
  else
    local letter = redis.call('XADD', dead, '*', unpack(ARGV, at + 2, at + 1 + count))
    local first, third = ARGV[at + 4], ARGV[at + 6] -- behind the two that say why it died
    local uuid = count > 2 and (first == 'id' and ARGV[at + 5] or count > 4 and third == 'job_id' and ARGV[at + 7])
    trail(uuid, 'dead ' .. lane .. ' ' .. letter)
    if not orphaned then redis.call('XACK', stream, group, id) end
    if ARGV[3] == '1' then redis.call('XDEL', stream, id) end
    redis.call('HDEL', KEYS[3], where .. id)
    moved = moved + 1
  end
  at = at + 2 + count
end
return {moved, gone, fenced}
