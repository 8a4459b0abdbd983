#!lua flags=allow-oom
-- Ack entries that are still ours.
-- KEYS  stream, steals, and starts if any of them may have a start-mark, to remove it
-- ARGV  group, consumer, fence, '1' if it is a retry stream: delete them too, then entry ids
-- Gives the consumer's counter (or '' if it has none), how many were acked, how many were gone, the ids that others
-- hold, and the ids of those gone that others may have held.
-- Keeps a consumer that was robbed from acking what another one is working on. If nothing was taken since before these
-- were read, all of them are ours; else each is looked up.
local stream, group, me, starts = KEYS[1], ARGV[1], ARGV[2], KEYS[3]
if starts then
  local kind = redis.call('TYPE', starts).ok
  if kind ~= 'hash' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE ' .. starts .. ' is a ' .. kind .. ', not a hash')
  end
end
local counter = redis.call('HGET', KEYS[2], me) or ''
local mine, unclear, fenced = {}, {}, {}
if counter == ARGV[3] then
  for i = 5, #ARGV do mine[#mine + 1] = ARGV[i] end
else
  for i = 5, #ARGV do
    local row = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1]
    if not row then
      unclear[#unclear + 1] = ARGV[i]
    elseif row[2] == me then
      mine[#mine + 1] = ARGV[i]
    else
      fenced[#fenced + 1] = ARGV[i]
    end
  end
end
local acked = 0
if #mine > 0 then
  acked = redis.call('XACK', stream, group, unpack(mine))
  if acked == 0 then redis.call('XPENDING', stream, group) end -- XACK does not tell that the group is gone; this does
  if ARGV[4] == '1' then redis.call('XDEL', stream, unpack(mine)) end
  if starts then
    local where = ARGV[4] == '1' and 'retry/' or 'topic/'
    for i = 1, #mine do redis.call('HDEL', starts, where .. mine[i]) end
  end
end
return {counter, acked, #unclear + #mine - acked, fenced, unclear}
