#!lua flags=allow-oom
-- Ack entries that are still ours, and note that their messages are done.
-- KEYS  stream, starts, then one key per entry for the note
-- ARGV  group, consumer, '1' if it is a retry stream: delete them there too, window in ms, then entry ids
-- Gives how many were acked, the ids that others hold, and the ids of those that were gone.
-- Keeps a message from being acked and not noted, or noted and not acked: a crash leaves both or neither. Whoever lost an
-- entry notes nothing, for its new owner is at work on it.
-- Uses: must_be
local stream, starts, group, me = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
must_be('hash', starts)
for i = 3, #KEYS do redis.call('GET', KEYS[i]) end -- fails here, before the first write, if it is no string
local where = ARGV[3] == '1' and 'retry/' or 'topic/'
local ok, fenced, gone = 0, {}, {}
for i = 3, #KEYS do
  local id = ARGV[i + 2]
  local row = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if not row then
    gone[#gone + 1] = id
  elseif row[2] ~= me then
    fenced[#fenced + 1] = id
  else
    redis.call('SET', KEYS[i], 'done', 'PX', ARGV[4])
    redis.call('XACK', stream, group, id)
    if ARGV[3] == '1' then redis.call('XDEL', stream, id) end
    redis.call('HDEL', starts, where .. id)
    ok = ok + 1
  end
end
return {ok, fenced, gone}
