#!lua flags=allow-oom
-- Say how the schedules of a queue stand, once those that begin are there.
-- KEYS  crons
-- ARGV  per schedule that begins: name, times, terms
-- Gives the time in ms, and all fields and values.
-- Keeps a schedule whose times are the same where it is: what it owes is not forgotten because somebody starts.
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
for i = 1, #ARGV, 3 do
  local name, times, terms = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call('HGET', KEYS[1], 'times/' .. name) ~= times then
    redis.call('HSET', KEYS[1], 'times/' .. name, times, 'last/' .. name, now)
  end
  if redis.call('HGET', KEYS[1], 'terms/' .. name) ~= terms then
    redis.call('HSET', KEYS[1], 'terms/' .. name, terms)
  end
end
return {now, redis.call('HGETALL', KEYS[1])}
