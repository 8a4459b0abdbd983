#!lua flags=allow-oom
-- Take over pending entries that nobody has touched for a while.
-- KEYS  stream, steals
-- ARGV  group, consumer, least idle ms, where to start ('-' or '(id'), most to take, how many to look at, a random
--       number for counters that do not exist yet, then ids the consumer is still working on
-- Gives where to go on ('-': from the start), the entries taken, and ids that are pending but no longer in the stream:
-- these are left as they are.
-- Keeps every theft counted: the victim's counter rises in the same step, so that its settle will look before it acts.
local stream, group, me, idle = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local most, look = tonumber(ARGV[5]), tonumber(ARGV[6])
local running = {}
for i = 8, #ARGV do running[ARGV[i]] = true end
local rows = redis.call('XPENDING', stream, group, ARGV[4], '+', look)
local ids, lost, robbed = {}, {}, {}
local seen = nil
for _, row in ipairs(rows) do
  if #ids >= most then break end
  seen = row[1]
  if row[3] >= idle and not running[row[1]] then
    if #redis.call('XRANGE', stream, row[1], row[1]) == 0 then
      lost[#lost + 1] = row[1] -- XCLAIM would drop it without a word
    else
      ids[#ids + 1] = row[1]
      robbed[row[2]] = (robbed[row[2]] or 0) + 1
    end
  end
end
local rest = rows[#rows] and (seen ~= rows[#rows][1] or #rows == look)
local cursor = rest and seen and '(' .. seen or '-'
if #ids == 0 then return {cursor, {}, lost} end
for victim, count in pairs(robbed) do
  redis.call('HSETNX', KEYS[2], victim, ARGV[7]) -- from 0 a counter could come back to a value it had before
  redis.call('HINCRBY', KEYS[2], victim, count)
end
return {cursor, redis.call('XCLAIM', stream, group, me, 0, unpack(ids)), lost}
