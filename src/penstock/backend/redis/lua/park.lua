#!lua
-- Put deliveries aside until they are due, and release them.
-- KEYS  stream, parked, starts, groups
-- ARGV  group, consumer, '1' if it is a retry stream: delete them there too, the trail: how keys of records begin ('': none
--       are kept), the lane, how long they last in ms; then per entry: id, delay in ms, parcel
-- Gives how many were parked, how many were gone, and the ids that others hold.
-- Keeps a failed delivery from being lost: it is in the parked set before it leaves the pending list, in one step. If
-- a retry stream was deleted, and perhaps made again, whoever still has a delivery of it in hand has the last copy: that
-- is stored all the same.
-- Uses: must_be
local stream, parked, group, me = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
for i, right in ipairs({'stream', 'zset', 'hash', 'hash'}) do must_be(right, KEYS[i]) end
local prefix, lane, keep = ARGV[4], ARGV[5], ARGV[6]
local function trail(id, place, ms) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, ms)
end
local function id_of(parcel) -- of the message in it: first, as a rule, or behind the document of a job
  if string.sub(parcel, 1, 10) == '\0\0\0\2id\0\0\0\36' then return string.sub(parcel, 11, 46) end
  local fine, name, value, at = pcall(struct.unpack, '>I4c0I4c0', parcel, 1)
  if fine and name == 'data' then fine, name, value = pcall(struct.unpack, '>I4c0I4c0', parcel, at) end
  return fine and name == 'job_id' and value
end
local where = ARGV[3] == '1' and 'retry/' or 'topic/'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
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
local ids, members, gone, fenced, seen, trails = {}, {}, 0, {}, {}, {}
for i = 7, #ARGV, 3 do
  local row = holding(ARGV[i])
  if not row or seen[ARGV[i]] then
    gone = gone + 1
  elseif row[2] ~= me then
    fenced[#fenced + 1] = ARGV[i]
  else
    ids[#ids + 1], seen[ARGV[i]] = ARGV[i], true
    local due, parcel = string.format('%.0f', now + ARGV[i + 1]), ARGV[i + 2]
    members[#members + 1] = due
    members[#members + 1] = parcel
    if prefix ~= '' then
      trails[#trails + 1] = {id_of(parcel), 'parked ' .. lane .. ' ' .. due, keep + ARGV[i + 1]}
    end
  end
end
if #ids > 0 then
  redis.call('ZADD', parked, unpack(members))
  for _, one in ipairs(trails) do trail(unpack(one)) end
  if not orphaned then redis.call('XACK', stream, group, unpack(ids)) end
  if ARGV[3] == '1' then redis.call('XDEL', stream, unpack(ids)) end
  for i = 1, #ids do redis.call('HDEL', KEYS[3], where .. ids[i]) end
end
return {#ids, gone, fenced}
