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
local parked, retry, dead = KEYS[1], KEYS[2], KEYS[3]
for _, key in ipairs({retry, dead}) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'stream' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind .. ', not a stream')
  end
end
local prefix, lane, keep = ARGV[6], ARGV[7], ARGV[8]
local function trail(id, place) -- where to look for a message, for those who know nothing but its id
  if prefix == '' or not id or #id ~= 36 then return end
  local record = prefix .. string.lower(id)
  redis.pcall('HSET', record, 'at', place) -- only a hint: whatever it meets must not undo half of what it is a hint to
  redis.pcall('PEXPIRE', record, keep)
end
local function open(parcel)
  local values, at, value = {}, 1, nil
  while at <= #parcel do
    value, at = struct.unpack('>I4c0', parcel, at)
    values[#values + 1] = value
  end
  assert(#values > 0 and #values % 2 == 0)
  return values
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function failed_before(parcel, began) -- and did not become ready since
  local fine, is_so = pcall(function()
    local values = open(parcel)
    if values[#values - 1] ~= 'penstock-delivery' then return false end
    local record = cjson.decode(values[#values])
    local made_ready = tonumber(string.match(record.retry or '', '^%d+') or 0)
    return record.failed ~= false and record.deliveries ~= 0 and made_ready < began
  end)
  return fine and is_so
end
local early, due = ARGV[9] ~= '', nil
local left, first_due, last_due, place = 0, '', '', {}
if early then
  local began, from, passed, upto = tonumber(ARGV[10]), ARGV[11], tonumber(ARGV[12]), ARGV[13]
  if not began then
    began, from, passed = now, '-inf', 0
    upto = redis.call('ZRANGE', parked, -1, -1, 'WITHSCORES')[2] or '-inf'
  end
  local found = redis.call('ZRANGE', parked, from, upto, 'BYSCORE', 'LIMIT', passed, ARGV[2], 'WITHSCORES')
  local looked_at, size = 0, 0
  due = {}
  for i = 1, #found, 2 do
    if size > 1048576 then break end
    local parcel, score = found[i], found[i + 1]
    looked_at, size = looked_at + 1, size + #parcel
    if score ~= from then from, passed = score, 0 end
    if tonumber(score) <= began or failed_before(parcel, began) then
      due[#due + 1] = parcel
      first_due, last_due = first_due == '' and score or first_due, score
      if ARGV[9] == 'count' then passed = passed + 1 end
    else
      left, passed = left + 1, passed + 1
    end
  end
  if looked_at == tonumber(ARGV[2]) or 2 * looked_at < #found then
    place = {string.format('%.0f', began), from, passed, upto}
  end
  if ARGV[9] == 'count' then return {#due, left, first_due, last_due, unpack(place)} end
else
  due = redis.call('ZRANGE', parked, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', 0, ARGV[2])
end
if #due > 0 then
  local known = redis.call('EXISTS', retry) == 1
  local created = redis.pcall('XGROUP', 'CREATE', retry, ARGV[1], '0', 'MKSTREAM') -- BUSYGROUP, as a rule
  -- A new group on a stream that was there delivers again what readers of the old one may still hold.
  if known and not created.err then redis.call('DEL', KEYS[4]) end
end
local moved, bytes = 0, 0
for _, parcel in ipairs(due) do
  if bytes > 1048576 and not early then break end -- what is early was counted above
  moved, bytes = moved + 1, bytes + #parcel
  local fine = pcall(function()
    local values = open(parcel)
    local id = redis.call('XADD', retry, '*', unpack(values))
    trail(values[1] == 'id' and values[2] or values[3] == 'job_id' and values[4], 'retry ' .. lane .. ' ' .. id)
  end)
  if not fine then redis.call('XADD', dead, '*', ARGV[3], ARGV[4], ARGV[5], parcel) end
  if early then redis.call('ZREM', parked, parcel) end
end
if early then return {moved, left, first_due, last_due, unpack(place)} end
-- By rank: those that moved were the lowest scores when this step began, and nothing has come between.
if moved > 0 then redis.call('ZREMRANGEBYRANK', parked, 0, moved - 1) end
local first = redis.call('ZRANGE', parked, 0, 0, 'WITHSCORES')
return {moved, first[2] and math.max(0, tonumber(first[2]) - now) or -1}
