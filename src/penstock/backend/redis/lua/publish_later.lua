#!lua
-- Put messages aside until they are due.
-- KEYS  later, topic, then, if they are to be published once, one dedupe key per message
-- ARGV  '1' if the topic may be created, 'in' or 'at', ms from now or since 1970, window in ms, then one member per message
-- Gives one pair per message: '' and 0, or, if it was published before, its entry id ('' if that was for later) and 1.
-- Nothing at all: the topic does not exist.
-- Keeps a message from being put aside twice inside its window: the look-up, the writing and the note are one step.
-- Uses: must_be
local later, topic = KEYS[1], KEYS[2]
for i, right in ipairs({'zset', 'stream'}) do must_be(right, KEYS[i]) end
if ARGV[1] ~= '1' and redis.call('EXISTS', topic) == 0 then return {} end
local known = {}
for i = 3, #KEYS do -- read every key before the first write: one of the wrong type must not leave half a batch behind
  known[KEYS[i]] = redis.call('GET', KEYS[i]) or nil
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local due = string.format('%.0f', ARGV[2] == 'in' and now + ARGV[3] or tonumber(ARGV[3]))
local result = {}
for i = 5, #ARGV do
  local key = KEYS[i - 2]
  if key and known[key] then
    result[#result + 1] = {known[key], 1}
  else
    redis.call('ZADD', later, due, ARGV[i])
    if key then
      redis.call('SET', key, '', 'PX', ARGV[4])
      known[key] = '' -- the same message may stand twice in one batch
    end
    result[#result + 1] = {'', 0}
  end
end
return result
