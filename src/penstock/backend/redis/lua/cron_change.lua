#!lua flags=allow-oom
-- Pause, resume or forget a schedule.
-- KEYS  crons
-- ARGV  name, 'pause', 'resume' or 'forget'
-- Gives 1, or 0 if there is no such schedule.
-- Keeps one that is resumed from making up for what it missed: it goes on from now, in the same step.
local crons, name, change = KEYS[1], ARGV[1], ARGV[2]
if redis.call('HEXISTS', crons, 'times/' .. name) == 0 then return 0 end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
if change == 'pause' then
  redis.call('HSET', crons, 'paused/' .. name, now)
elseif change == 'resume' then
  if redis.call('HDEL', crons, 'paused/' .. name) == 1 then redis.call('HSET', crons, 'last/' .. name, now) end
else
  redis.call('HDEL', crons, 'times/' .. name, 'terms/' .. name, 'last/' .. name, 'paused/' .. name)
end
return 1
