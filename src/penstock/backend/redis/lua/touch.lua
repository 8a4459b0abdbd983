#!lua flags=allow-oom
-- Set the idle time of entries that are still ours: to 0 renews the lease, to a very long time hands them back.
-- KEYS  stream
-- ARGV  group, consumer, idle ms, then entry ids
-- Gives how many of the ids were dealt with, from the first on (fewer than all if the entries are large), and those of
-- them that are not ours any more, or gone.
-- Keeps a late renewal from taking an entry back from its new owner, and a pending entry that is gone from the stream
-- for whoever reports it: XCLAIM would drop it without a word.
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local bytes = 0 -- that were copied: the server does not tell whether an entry is there without that, and XINFO copies two
local function is_there(id)
  local found = redis.call('XRANGE', stream, id, id)[1]
  for _, value in ipairs(found and found[2] or {}) do bytes = bytes + #value end
  return found ~= nil
end
local mine, lost, dealt_with = {}, {}, 0
for i = 4, #ARGV do
  if bytes > 262144 then break end
  dealt_with = dealt_with + 1
  local row = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1]
  if row and row[2] == me and is_there(ARGV[i]) then
    mine[#mine + 1] = ARGV[i]
  else
    lost[#lost + 1] = ARGV[i]
  end
end
if #mine > 0 then
  mine[#mine + 1] = 'IDLE'
  mine[#mine + 1] = ARGV[3]
  mine[#mine + 1] = 'JUSTID' -- without it the server would count a delivery
  redis.call('XCLAIM', stream, group, me, 0, unpack(mine))
end
return {dealt_with, lost}
