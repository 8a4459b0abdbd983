#!lua
-- Append messages that were not appended before under the same dedupe key.
-- KEYS  stream, then one dedupe key per message
-- ARGV  window in ms, '1' to create the stream if need be, then per message: how many fields and values, and these
-- Gives one string per message: its entry id; '=' and the id if it was there already, or '=' alone if that was for later;
-- '' if the stream does not exist.
-- Keeps a message from being written twice inside its window: the look-up, the append and the note are one step.
-- Uses: must_be
local stream, window, create = KEYS[1], ARGV[1], ARGV[2] == '1'
must_be('stream', stream)
local known = {}
for i = 2, #KEYS do -- read every key before the first write: one of the wrong type must not leave half a batch behind
  known[KEYS[i]] = redis.call('GET', KEYS[i]) or nil
end
local result, at = {}, 3
for i = 2, #KEYS do
  local key, count = KEYS[i], tonumber(ARGV[at])
  local first, last = at + 1, at + count
  if known[key] then
    result[i - 1] = '=' .. known[key]
  else
    local id
    if create then
      id = redis.call('XADD', stream, '*', unpack(ARGV, first, last))
    else
      id = redis.call('XADD', stream, 'NOMKSTREAM', '*', unpack(ARGV, first, last))
    end
    if id then
      redis.call('SET', key, id, 'PX', window)
      known[key] = id -- the same message may stand twice in one batch
    end
    result[i - 1] = id or ''
  end
  at = last + 1
end
return result
