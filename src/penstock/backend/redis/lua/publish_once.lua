#!lua
-- Append messages that were not appended before under the same dedupe key.
-- KEYS  stream, then one dedupe key per message
-- ARGV  window in ms, '1' to create the stream if need be, then per message: how many fields and values, and these
-- Gives one pair per message: entry id, and 1 if it was there already. '' as id: the stream does not exist.
-- Keeps a message from being written twice inside its window: the look-up, the append and the note are one step.
local stream, window, create = KEYS[1], ARGV[1], ARGV[2] == '1'
local kind = redis.call('TYPE', stream).ok
if kind ~= 'stream' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE ' .. stream .. ' is a ' .. kind .. ', not a stream')
end
local known = {}
for i = 2, #KEYS do -- read every key before the first write: one of the wrong type must not leave half a batch behind
  known[KEYS[i]] = redis.call('GET', KEYS[i]) or nil
end
local result, at = {}, 3
for i = 2, #KEYS do
  local key, count = KEYS[i], tonumber(ARGV[at])
  if known[key] then
    result[#result + 1] = {known[key], 1}
  else
    local add = create and {'XADD', stream, '*'} or {'XADD', stream, 'NOMKSTREAM', '*'}
    for k = at + 1, at + count do add[#add + 1] = ARGV[k] end
    local id = redis.call(unpack(add))
    if id then
      redis.call('SET', key, id, 'PX', window)
      known[key] = id -- the same message may stand twice in one batch
    end
    result[#result + 1] = {id or '', 0}
  end
  at = at + count + 1
end
return result
