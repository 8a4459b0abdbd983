#!lua
-- Take over jobs of a queue in a sorted set, or of its list of the dead.
-- KEYS  that set or list, what was counted so far; per lane: stream, parked, dead; per job: its old record, its new one
-- ARGV  name of the other queue, how many lanes, how long records last in ms, those of the dead; per job: member, SHA-1 of
--       its old record ('': it has none), lane, 'lane', 'parked', 'dead' or 'nowhere', when it is due in ms, how many
--       fields and values (or one parcel), these
-- Gives per job: 1 it was moved, 2 it was moved before and is off the list now, 0 it is not there, -1 its record changed, or is gone.
-- Keeps each job in exactly one of both queues: it is written here before it leaves there, in one step.
-- Uses: must_be
local source, tally, name, lanes = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
local is_list = redis.call('TYPE', source).ok == 'list'
if not is_list then must_be('zset', source) end
must_be('hash', tally)
for i = 0, lanes - 1 do
  must_be('stream', KEYS[3 + 3 * i])
  must_be('zset', KEYS[4 + 3 * i])
  must_be('stream', KEYS[5 + 3 * i])
end
local function is_there(member)
  if is_list then return redis.call('LPOS', source, member) end
  return redis.call('ZSCORE', source, member)
end
local function leave(member, record, place)
  if is_list then redis.call('LREM', source, 1, member) else redis.call('ZREM', source, member) end
  if record then redis.call('DEL', record) end
  redis.call('HINCRBY', tally, place .. ' ' .. name, 1)
end
local function write(place, lane, due, first, last)
  local stream, parked, dead = KEYS[3 + 3 * lane], KEYS[4 + 3 * lane], KEYS[5 + 3 * lane]
  if place == 'parked' then
    redis.call('ZADD', parked, due, ARGV[first])
    return 'parked ' .. lane .. ' ' .. due
  end
  return place .. ' ' .. lane .. ' ' .. redis.call('XADD', place == 'dead' and dead or stream, '*', unpack(ARGV, first, last))
end
local function take(at, old, new)
  local member, sha, lane, place, due = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3], ARGV[at + 4]
  local record = redis.pcall('GET', old)
  record = type(record) == 'string' and record
  local was_moved = not record and is_list and redis.call('EXISTS', new) == 1
  -- Not looked for in the list if it stays there anyway: that takes as long as the list is.
  if is_list and not record and not was_moved then return -1 end
  if not is_there(member) then return 0 end
  if was_moved then
    leave(member, nil, 'nowhere')
    return 2
  end
  if not record or redis.sha1hex(record) ~= sha then return -1 end
  if place == 'nowhere' then
    leave(member, nil, place)
    return 1
  end
  local where = write(place, lane, due, at + 6, at + 5 + ARGV[at + 5])
  redis.call('DEL', new)
  redis.call('HSET', new, 'at', where)
  local time = redis.call('TIME')
  local left = place == 'parked' and math.max(0, due - time[1] * 1000) or 0
  redis.call('PEXPIRE', new, string.format('%.0f', left + ARGV[place == 'dead' and 4 or 3]))
  leave(member, old, place)
  return 1
end
local results, at, key = {}, 5, 3 + 3 * lanes
while at <= #ARGV do
  results[#results + 1] = take(at, KEYS[key], KEYS[key + 1])
  at, key = at + 6 + ARGV[at + 5], key + 2
end
return results
