#!lua
-- Make parked deliveries that are due ready again, earliest first; or, a part of them in each call, also those that have
-- failed and are not due yet.
-- KEYS  parked, retry, dead, steals
-- ARGV  group, most to move (fewer if they are large), how a dead letter begins: field, value, field of the bytes; the
--       trail: how keys of records begin ('': none are kept), the lane, how long they last in ms; '' for those that are
--       due, or 'early', or 'count' to write nothing; then what the call before has given of its place, if there was one
-- Gives how many left the set, and when the next one is due in ms from now (-1: nothing is parked). Or, if early: how many
-- left the set, how many were looked at and stay, when the first and the last that left was due, and its place: when the
-- first call was in ms, the score to go on from, how many of that score are passed, the last score to look at; no place
-- if that was all.
-- Keeps each in exactly one place: it is on the retry stream before it leaves the set, in one step. What cannot be
-- opened or written goes to the dead letters: it would stop all behind it, and those before it would come twice.
-- Early, each that waited when the first call came leaves once: what fails again meanwhile, or has not failed, stays.
-- Uses: must_be, values_of
local parked, retry, dead = KEYS[1], KEYS[2], KEYS[3]
for _, key in ipairs({retry, dead}) do must_be('stream', key) end
local prefix, lane, keep = ARGV[6], ARGV[7], ARGV[8]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, keep)
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function failed_before(parcel, began) -- and did not become ready since
  local fine, is_so = pcall(function()
    local values = values_of(parcel, 0)
    if values[#values - 1] ~= 'penstock-delivery' then return false end
    local record = cjson.decode(values[#values])
    local made_ready = tonumber(string.match(record.retry or '', '^%d+') or 0)
    return record.failed ~= false and record.deliveries ~= 0 and made_ready < began
  end)
  return fine and is_so
end
local most = tonumber(ARGV[2])
local function waiting(from, upto, passed) -- parcels with their scores, and whether there may be more of them
  local found, size, page = {}, 0, 1
  while #found < 2 * most and size <= 1048576 do
    local few = math.min(page, most - #found / 2) -- one at first, then more: each is copied here, and they may be large
    local rows = redis.call('ZRANGE', parked, from, upto, 'BYSCORE', 'LIMIT', passed + #found / 2, few, 'WITHSCORES')
    for i = 1, #rows, 2 do
      if size > 1048576 then break end
      size = size + #rows[i]
      found[#found + 1], found[#found + 2] = rows[i], rows[i + 1]
    end
    if #rows < 2 * few then return found, size > 1048576 end
    page = math.min(2 * page, 10)
  end
  return found, true
end
local early, due = ARGV[9] ~= '', {}
local left, first_due, last_due, place = 0, '', '', {}
if early then
  local began, from, passed, upto = tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12]), ARGV[13]
  if not began then
    began, from, passed = now, '-inf', 0
    upto = redis.call('ZRANGE', parked, -1, -1, 'WITHSCORES')[2] or '-inf'
  end
  local found, may_be_more = waiting(from, upto, passed)
  for i = 1, #found, 2 do
    local parcel, score = found[i], found[i + 1]
    if score ~= from then from, passed = score, 0 end
    if tonumber(score) <= began or failed_before(parcel, began) then
      due[#due + 1] = parcel
      first_due, last_due = first_due == '' and score or first_due, score
      if ARGV[9] == 'count' then passed = passed + 1 end
    else
      left, passed = left + 1, passed + 1
    end
  end
  if may_be_more then place = {string.format('%.0f', began), from, passed, upto} end
  if ARGV[9] == 'count' then return {#due, left, first_due, last_due, unpack(place)} end
else
  local found = waiting('-inf', string.format('%.0f', now), 0)
  for i = 1, #found, 2 do due[#due + 1] = found[i] end
end
if #due > 0 then
  local known = redis.call('EXISTS', retry) == 1
  local created = redis.pcall('XGROUP', 'CREATE', retry, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP, as a rule
  -- A new group on a stream that was there delivers again what readers of the old one may still hold.
  if known and not created.err then redis.call('DEL', KEYS[4]) end
end
for _, parcel in ipairs(due) do
  local fine = pcall(function()
    local values = values_of(parcel, 0)
    local id = redis.call('XADD', retry, '*', unpack(values))
    trail(values[1] == 'id' and values[2] or values[3] == 'job_id' and values[4], 'retry ' .. lane .. ' ' .. id)
  end)
  if not fine then redis.call('XADD', dead, '*', ARGV[3], ARGV[4], ARGV[5], parcel) end
  if early then redis.call('ZREM', parked, parcel) end
end
if early then return {#due, left, first_due, last_due, unpack(place)} end
-- By rank: those that moved were the lowest scores when this step began, and nothing has come between.
if #due > 0 then redis.call('ZREMRANGEBYRANK', parked, 0, #due - 1) end
local first = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
return {#due, first[2] and math.max(0, tonumber(first[2]) - now) or -1}
