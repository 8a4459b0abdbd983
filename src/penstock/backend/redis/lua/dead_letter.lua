#!lua
-- Move entries to the dead letters.
-- KEYS  stream, dead
-- ARGV  group, consumer, '1' to delete them from the stream too, then per entry: id, number of fields and values, these
-- Gives how many were moved, how many were gone, and the ids that others hold.
-- Keeps a message from being lost on its way: the copy is written before the entry is released, in one step. An entry
-- that is pending but was trimmed or deleted belongs to nobody who could still handle it, so anyone may report it.
local stream, dead, group, me = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local kind = redis.call('TYPE', dead).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. dead .. ' is a ' .. kind .. ', not a stream')
end
local moved, gone, fenced, at = 0, 0, {}, 4
while at <= #ARGV do
  local id, count = ARGV[at], tonumber(ARGV[at + 1])
  local row = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not row then
    gone = gone + 1
  elseif row[2] ~= me and #redis.call('XRANGE', stream, id, id) > 0 then
    fenced[#fenced + 1] = id
  else
    redis.call('XADD', dead, '*', unpack(ARGV, at + 2, at + 1 + count))
    redis.call('XACK', stream, group, id)
    if ARGV[3] == '1' then redis.call('XDEL', stream, id) end
    moved = moved + 1
  end
  at = at + 2 + count
end
return {moved, gone, fenced}
