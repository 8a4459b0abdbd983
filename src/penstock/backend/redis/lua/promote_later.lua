#!lua
-- Append messages that are due to their topic, earliest first.
-- KEYS  later, topic, dead
-- ARGV  '1' if the topic may be created, most to move (fewer if they are large), how many bytes lead a member, then how
--       a dead letter begins: field, value, field of the bytes
-- Gives how many left the set (-1: the topic does not exist), and when the next one is due in ms from now (-1: none waits).
-- Keeps each in exactly one place: it is on the topic before it leaves the set, in one step. What cannot be opened or
-- written goes to the dead letters: it would stop all behind it, and those before it would come twice.
-- Uses: must_be, values_of
local later, topic, dead = KEYS[1], KEYS[2], KEYS[3]
for _, key in ipairs({topic, dead}) do must_be('stream', key) end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due, bytes, page, most = {}, 0, 1, tonumber(ARGV[2])
while #due < most and bytes <= 1048576 do
  local few = math.min(page, most - #due) -- one at first, then more: each is copied here, and they may be large
  local found = redis.call('ZRANGE', later, '-inf', string.format('%.0f', now), 'BYSCORE', 'LIMIT', #due, few)
  for _, member in ipairs(found) do
    if bytes > 1048576 then break end
    bytes = bytes + #member
    due[#due + 1] = member
  end
  if #found < few then break end
  page = math.min(2 * page, 10)
end
if #due > 0 and ARGV[1] ~= '1' and redis.call('EXISTS', topic) == 0 then return {-1, 0} end
for _, member in ipairs(due) do
  local fine = pcall(function() redis.call('XADD', topic, '*', unpack(values_of(member, ARGV[3]))) end)
  if not fine then redis.call('XADD', dead, '*', ARGV[4], ARGV[5], ARGV[6], member) end
end
-- By rank: the due ones were the lowest scores when this step began, and nothing has come between.
if #due > 0 then redis.call('ZREMRANGEBYRANK', later, 0, #due - 1) end
local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
return {#due, first[2] and math.max(0, tonumber(first[2]) - now) or -1}
