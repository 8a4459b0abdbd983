#!lua flags=allow-oom
-- Take over pending entries that nobody has touched for a while.
-- KEYS  stream, steals, starts
-- ARGV  group, consumer, '1' if it is a retry stream, least idle ms, where to start ('-' or '(id'), most to take, how
--       many to look at, a random number for counters that do not exist yet, most to take of what was handed back,
--       least idle ms of the consumer's own entries, then ids the consumer is still working on
-- Gives where to go on ('-': from the start), the entries taken, ids that are pending but no longer in the stream (these
-- are left as they are), and for each entry taken whether its owner had handed it back (1) or not (0).
-- Keeps every theft counted: the victim's counter rises in the same step, so that its settle will look before it acts.
-- On the way it drops a few start-marks of entries that are not pending any more, for nobody else would.
local stream, group, me, idle = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[4])
local most, look = tonumber(ARGV[6]), tonumber(ARGV[7])
local room, own_idle = tonumber(ARGV[9]), math.max(idle, tonumber(ARGV[10]))
local HANDED_BACK = 300 * 86400000
local running = {}
for i = 11, #ARGV do running[ARGV[i]] = true end
local rows = redis.call('XPENDING', stream, group, ARGV[5], '+', look)
local kind = ARGV[3] == '1' and 'retry' or 'topic'
for _, field in ipairs(redis.call('HRANDFIELD', KEYS[3], 10)) do
  local where, id = string.match(field, '^(%a+)/(%d+%-%d+)$')
  if where == kind and not redis.call('XPENDING', stream, group, id, id, 1)[1] then
    redis.call('HDEL', KEYS[3], field)
  end
end
local ids, lost, robbed, handed_back = {}, {}, {}, {}
local seen = nil
for _, row in ipairs(rows) do
  if #ids >= most then break end
  seen = row[1]
  if row[3] >= (row[2] == me and own_idle or idle) and not running[row[1]] then
    local back = row[3] >= HANDED_BACK and 1 or 0
    if #redis.call('XRANGE', stream, row[1], row[1]) == 0 then
      lost[#lost + 1] = row[1] -- XCLAIM would drop it without a word
    elseif back <= room then
      room = room - back
      ids[#ids + 1] = row[1]
      handed_back[#ids] = back
      robbed[row[2]] = (robbed[row[2]] or 0) + 1
    end
  end
end
local rest = rows[#rows] and (seen ~= rows[#rows][1] or #rows == look)
local cursor = rest and seen and '(' .. seen or '-'
if #ids == 0 then return {cursor, {}, lost, {}} end
for victim, count in pairs(robbed) do
  redis.call('HSETNX', KEYS[2], victim, ARGV[8]) -- from 0 a counter could come back to a value it had before
  redis.call('HINCRBY', KEYS[2], victim, count)
end
return {cursor, redis.call('XCLAIM', stream, group, me, 0, unpack(ids)), lost, handed_back}
