#!lua flags=allow-oom
-- Take over pending entries that nobody has touched for a while.
-- KEYS  stream, steals, starts
-- ARGV  group, consumer, '1' if it is a retry stream, least idle ms, where to start ('-' or '(id'), most to take, how
--       many to look at, a random number for counters that do not exist yet, most to take of what was handed back,
--       least idle ms of the consumer's own entries, then ids the consumer is still working on
-- Gives where to go on ('-': from the start), the entries taken, each with whether its owner had handed it back (1) or
-- not (0) and how often it was delivered by now, and ids that are pending but no longer in the stream (these are left as
-- they are). Ends early where the entries are large.
-- Keeps every theft counted: the victim's counter rises in the same step, so that its settle will look before it acts.
-- What a group that was moved back will be given again is left to whoever reads: reading takes it over and counts nothing.
-- On the way it drops a few start-marks of entries that are not pending any more, for nobody else would.
-- Uses: facts, less
local stream, group, me, idle = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local most, look = tonumber(ARGV[6]), tonumber(ARGV[7])
local room, own_idle = tonumber(ARGV[9]), math.max(idle, tonumber(ARGV[10]))
local HANDED_BACK = 300 * 86400000
local running = {}
for i = 11, #ARGV do running[ARGV[i]] = true end
local function read_upto()
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local found = facts(row)
    if found.name == group then return found['last-delivered-id'] end
  end
end
local rows = redis.call('XPENDING', stream, group, ARGV[5], '+', look)
local upto = rows[1] and read_upto()
local may_be_more, still = #rows == look, {}
if rows[1] and less(upto, rows[#rows][1]) then
  -- What is gone from the stream behind its newest entry nobody will be given.
  local newest = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  for _, row in ipairs(rows) do
    if not less(upto, row[1]) or not newest or less(newest[1], row[1]) then still[#still + 1] = row end
  end
  rows = still
end
local kind = ARGV[3] == '1' and 'retry' or 'topic'
for _, field in ipairs(redis.call('HRANDFIELD', KEYS[3], 10)) do
  local where, id = string.match(field, '^(%a+)/(%d+%-%d+)$')
  if where == kind and not redis.call('XPENDING', stream, group, id, id, 1)[1] then
    redis.call('HDEL', KEYS[3], field)
  end
end
local function size(entry)
  local bytes = 0
  for _, value in ipairs(entry[2]) do bytes = bytes + #value end
  return bytes
end
local function take(id, victim, deliveries)
  redis.call('HSETNX', KEYS[2], victim, ARGV[8]) -- from 0 a counter could come back to a value it had before
  redis.call('HINCRBY', KEYS[2], victim, 1)
  -- JUSTID, for we have its content already, and to copy a large one takes a while; so we count the delivery ourselves.
  redis.call('XCLAIM', stream, group, me, 0, id, 'RETRYCOUNT', deliveries, 'JUSTID')
end
local taken, lost, bytes, seen = {}, {}, 0, nil
for _, row in ipairs(rows) do
  local id, holder, untouched, deliveries = unpack(row)
  if #taken >= most or bytes > 1048576 then break end
  seen = id
  local back = untouched >= HANDED_BACK and 1 or 0
  if untouched >= (holder == me and own_idle or idle) and not running[id] and back <= room then
    local entry = redis.call('XRANGE', stream, id, id)[1]
    if entry then
      room, bytes = room - back, bytes + size(entry)
      take(id, holder, deliveries + 1)
      taken[#taken + 1] = {entry, back, deliveries + 1}
    else
      lost[#lost + 1] = id -- XCLAIM would drop it without a word
    end
  end
end
local rest = rows[#rows] and (seen ~= rows[#rows][1] or may_be_more)
return {rest and seen and '(' .. seen or '-', taken, lost}
