#!lua flags=allow-oom
-- Set the idle time of entries that are still ours: to 0 renews the lease, to a very long time hands them back.
-- KEYS  stream
-- ARGV  group, consumer, idle ms, then entry ids
-- Gives the ids that are not ours any more, or gone.
-- Keeps a late renewal from taking an entry back from its new owner.
local stream, group, me = KEYS[1], ARGV[1], ARGV[2]
local mine, lost = {}, {}
for i = 4, #ARGV do
  local row = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1]
  if row and row[2] == me and #redis.call('XRANGE', stream, ARGV[i], ARGV[i]) > 0 then
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
return lost
