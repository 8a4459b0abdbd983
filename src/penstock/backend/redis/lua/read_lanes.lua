#!lua flags=allow-oom
-- Lease entries that a group never had from several lanes, in the order asked for, and no more than are wanted in all.
-- KEYS  for each lane: its retry stream, its stream; then recalled, rate
-- ARGV  group, consumer, most in all, most that may be pending in all lanes ('0': any number), how long one more takes in µs
--       ('0': no matter), how many may come at once, then steps: the number of a lane, most to take of it in this step
-- Gives what was read, as XREADGROUP gives it (a stream may come twice); the error that ended it early, or ''; in how many
-- ms to ask again if a limit is reached or very many were recalled, or 0; and, if there was nothing and a limit counts, the
-- last id the group was given of each stream.
-- Keeps everything it took in its answer: what is wrong with one stream does not hide what another one gave. What was
-- recalled before anybody read it is acked on the way, so many in one call. Limits are counted in the same step as what they
-- limit. Where the server loses count of what the group has read, because its last one was dropped, it is given it again:
-- what is trimmed next could not be counted.
-- Uses: facts
local group, me, left = ARGV[1], ARGV[2], tonumber(ARGV[3])
local limit, interval, burst = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local lanes, recalled, rate = (#KEYS - 2) / 2, KEYS[#KEYS - 1], KEYS[#KEYS]
local found, fault, wait, taken, passed_by, most_passed_by = {}, '', 0, 0, 0, 500
local has_recalled = redis.call('EXISTS', recalled) == 1
local time = redis.call('TIME')
local now, due = time[1] * 1000000 + time[2], 0
if limit > 0 then
  local pending = 0
  for i = 1, 2 * lanes do
    local summary = redis.pcall('XPENDING', KEYS[i], group)
    pending = pending + (summary.err and 0 or summary[1])
  end
  if limit - pending < left then left = limit - pending end
  if left <= 0 then wait = 50 end
end
if interval > 0 then
  due = math.max(now, tonumber(redis.call('GET', rate) or 0))
  local allowed = math.floor((now + burst * interval - due) / interval)
  if allowed <= 0 then wait = math.max(wait, 1, math.ceil((due - (burst - 1) * interval - now) / 1000)) end
  if allowed < left then left = allowed end
end
local function kept(stream, entries, is_retry)
  local rest = {}
  for _, entry in ipairs(entries) do
    if redis.call('SREM', recalled, stream .. '@' .. entry[1]) == 1 then
      redis.call('XACK', stream, group, entry[1])
      if is_retry then redis.call('XDEL', stream, entry[1]) end
      passed_by = passed_by + 1
    else
      rest[#rest + 1] = entry
    end
  end
  return rest
end
local function place(stream) -- how much the group has read of it, if the server knows, and the last it was given
  local rows = redis.pcall('XINFO', 'GROUPS', stream)
  for _, row in ipairs(rows.err and {} or rows) do
    local its = facts(row)
    if its.name == group then return its['entries-read'] or nil, its['last-delivered-id'] end
  end
end
local function take(number, most)
  local stream, got, given = KEYS[number], 0, 0
  local length = number % 2 == 0 and redis.pcall('XLEN', stream) or 0 -- of a retry stream nobody counts what was read
  local read = length ~= 0 and place(stream)
  while got < most and fault == '' and passed_by < most_passed_by do
    local reply = redis.pcall('XREADGROUP', 'GROUP', group, me, 'COUNT', most - got, 'STREAMS', stream, '>')
    if not reply then break end
    if reply.err then
      fault = reply.err
      break
    end
    local entries = reply[1][2]
    given = given + #entries
    local rest = has_recalled and kept(stream, entries, number % 2 == 1) or entries
    if #rest > 0 then found[#found + 1] = {stream, rest} end
    got = got + #rest
    if #rest == #entries then break end -- else what was recalled has left room
  end
  left, taken = left - got, taken + got
  if read and given > 0 then
    local now_read, last = place(stream)
    if last and not now_read then
      redis.pcall('XGROUP', 'SETID', stream, group, last, 'ENTRIESREAD', string.format('%.0f', read + given))
    end
  end
  return got
end
for i = 7, #ARGV, 2 do
  local lane, most = tonumber(ARGV[i]), math.min(left, tonumber(ARGV[i + 1]))
  if most > 0 then most = most - take(2 * lane - 1, most) end
  if most > 0 then take(2 * lane, most) end
end
if interval > 0 and taken > 0 then
  local next_due = due + taken * interval
  local life = math.ceil((next_due - now) / 1000) + 1000
  redis.call('SET', rate, string.format('%.0f', next_due), 'PX', string.format('%.0f', life))
end
if taken == 0 and passed_by >= most_passed_by then wait = math.max(wait, 1) end
local last = {}
if taken == 0 and wait == 0 and (limit > 0 or interval > 0) then
  for i = 1, 2 * lanes do
    local _, its = place(KEYS[i])
    last[i] = its or '0-0'
  end
end
return {found, fault, wait, last}
