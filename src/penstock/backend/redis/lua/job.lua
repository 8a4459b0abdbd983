#!lua flags=allow-oom
-- See where a job is that may move between lanes, and, if asked to, cancel it, have it done now, or give it another lane.
-- KEYS  record, recalled, then for each lane: its stream, retry stream, parked, dead
-- ARGV  group, the job's UUID, a place to look at if the record names none: 'lane <number> <entry id>', or ''; how long
--       records last in ms; what to do: 'look', 'cancel', 'run', or the number of a lane
-- Gives the time in ms; what is in the record; where the job is: 'queued', 'running', 'parked', 'dead', or 'gone'; its
-- lane; the id of its entry there, or when it is due; its fields, or its parcel; who holds it; the key of its stream. Then
-- 1 if it did what was asked, 2 if whoever runs the job is asked to end it, or 0.
-- Keeps one moment: looked for in one place after the other, a job that moves could be missed in all of them; and whoever
-- begins it meanwhile could do what was cancelled. An entry that nobody has read is never deleted from its lane, for that
-- would look like a loss: it is recalled, and whoever reads it passes it by. What was handed back was read, and is acked.
-- Uses: facts, less, must_be, values_of
local group, uuid, keep, act = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
for i, right in ipairs({'hash', 'set'}) do must_be(right, KEYS[i]) end
local record = redis.call('HGETALL', KEYS[1])
local place = ARGV[3]
for i = 1, #record, 2 do
  if record[i] == 'at' then place = record[i + 1] end
end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
local HANDED_BACK = 300 * 86400000
local function is_unread(stream, id)
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local its = facts(row)
    if its.name == group then return less(its['last-delivered-id'], id) end
  end
  return true
end
local function in_stream(stream, lane, id)
  local entry = redis.call('XRANGE', stream, id, id)[1]
  if not entry or redis.call('SISMEMBER', KEYS[2], stream .. '@' .. id) == 1 then return end
  local rows = redis.pcall('XPENDING', stream, group, id, id, 1)
  local row = not rows.err and rows[1]
  if row then return {row[3] < HANDED_BACK and 'running' or 'queued', lane, id, entry[2], row[2], stream} end
  if is_unread(stream, id) then return {'queued', lane, id, entry[2], '', stream} end
end
local function in_parked(set, lane, due)
  -- Those that are due together lie in the order of their bytes, which begin with the id.
  local wanted = '\0\0\0\2id\0\0\0\36' .. uuid
  local low = redis.call('ZCOUNT', set, '-inf', '(' .. due)
  local high = low + redis.call('ZCOUNT', set, due, due)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local parcel = redis.call('ZRANGE', set, middle, middle)[1]
    local start = string.sub(parcel, 1, #wanted)
    if start == wanted then return {'parked', lane, due, parcel, '', ''} end
    if start < wanted then low = middle + 1 else high = middle end
  end
  for _, parcel in ipairs(redis.call('ZRANGE', set, due, due, 'BYSCORE', 'LIMIT', 0, 2000)) do -- of other layouts
    if string.find(parcel, uuid, 1, true) then return {'parked', lane, due, parcel, '', ''} end
  end
end
local function keys_of(lane)
  return unpack(KEYS, 4 * lane + 3, 4 * lane + 6)
end
local function found()
  local kind, lane, id = string.match(place, '^(%a+) (%d+) ([%d-]+)$')
  if not kind or 4 * lane + 6 > #KEYS then return end
  local stream, retry, parked, dead = keys_of(lane)
  if kind == 'lane' then return in_stream(stream, lane, id) end
  if kind == 'retry' then return in_stream(retry, lane, id) end
  if kind == 'parked' then return in_parked(parked, lane, id) end
  local letter = redis.call('XRANGE', dead, id, id)[1]
  return letter and {'dead', lane, id, letter[2], '', ''}
end
local function note(...)
  redis.call('HSET', KEYS[1], ...)
  if redis.call('PTTL', KEYS[1]) < tonumber(keep) then redis.call('PEXPIRE', KEYS[1], keep) end
end
local function leave(job) -- nobody will begin it where it is
  local _, retry, parked = keys_of(job[2])
  local was_handed_back = job[5] ~= ''
  if was_handed_back then redis.call('XACK', job[6], group, job[3]) end
  if job[1] == 'parked' then
    redis.call('ZREM', parked, job[4])
  elseif job[6] == retry then
    redis.call('XDEL', retry, job[3])
  elseif not was_handed_back then
    redis.call('SADD', KEYS[2], job[6] .. '@' .. job[3])
    redis.call('PEXPIRE', KEYS[2], '2592000000')
  end
end
local function cancel(job)
  if job[1] == 'running' then
    note('cancel', '1')
    return 2
  end
  note('cancelled', now)
  redis.call('PEXPIRE', KEYS[1], keep) -- it was to last for as long as the job might wait
  leave(job)
  return 1
end
local function run(job)
  if job[1] ~= 'parked' then return 0 end
  local _, retry = keys_of(job[2])
  note('at', 'retry ' .. job[2] .. ' ' .. redis.call('XADD', retry, '*', unpack(values_of(job[4], 0))))
  leave(job)
  return 1
end
local function move(job, lane)
  if job[1] == 'running' or tonumber(lane) == tonumber(job[2]) then return 0 end
  local stream, retry, parked = keys_of(lane)
  if job[1] == 'parked' then
    redis.call('ZADD', parked, job[3], job[4])
    note('at', 'parked ' .. lane .. ' ' .. job[3])
  else
    local _, own_retry = keys_of(job[2])
    local is_retry = job[6] == own_retry
    local id = redis.call('XADD', is_retry and retry or stream, '*', unpack(job[4]))
    note('at', (is_retry and 'retry ' or 'lane ') .. lane .. ' ' .. id)
  end
  leave(job)
  return 1
end
local job, done = found(), 0
if job and job[1] ~= 'dead' then
  if act == 'cancel' then
    done = cancel(job)
  elseif act == 'run' then
    done = run(job)
  elseif act ~= 'look' then
    done = move(job, act)
  end
end
return {now, record, job or {'gone', '', '', {}, '', ''}, done}
