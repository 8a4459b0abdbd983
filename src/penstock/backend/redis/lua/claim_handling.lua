#!lua flags=allow-oom
-- Say who handles a message, so that a second entry of the same message is not handled beside it or after it.
-- KEYS  one key per claim
-- ARGV  lease in ms, then per claim: the entry it is handled as
-- Gives one verdict per claim: 'new', 'done', or 'busy' if another entry of the message is being handled.
-- Keeps two entries of one message from both being new: the look and the note are one step. The same entry is new again,
-- for the lease of the entry itself says who may handle it.
local known = {}
for i = 1, #KEYS do -- read every key before the first write: one of the wrong type must not leave half a batch behind
  known[KEYS[i]] = redis.call('GET', KEYS[i]) or nil
end
local verdicts = {}
for i = 1, #KEYS do
  local key, entry = KEYS[i], ARGV[i + 1]
  if known[key] == 'done' then
    verdicts[i] = 'done'
  elseif known[key] and known[key] ~= entry then
    verdicts[i] = 'busy'
  else
    redis.call('SET', key, entry, 'PX', ARGV[1])
    known[key] = entry -- the same message may stand twice in one batch
    verdicts[i] = 'new'
  end
end
return verdicts
