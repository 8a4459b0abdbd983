#!lua
-- Append what ticks of a schedule ask for, unless that is done.
-- KEYS  crons, stream
-- ARGV  name, times, terms, where the caller believes it is, where it is then, both in ms; then per message: how many
--       fields and values, and these
-- Gives 1, or 0 if the schedule is another, paused, or elsewhere.
-- Keeps each tick from coming twice, or not at all: the look, the messages and the note are one step.
-- Uses: must_be
local crons, stream, name = KEYS[1], KEYS[2], ARGV[1]
must_be('stream', stream)
local known = redis.call('HMGET', crons, 'times/' .. name, 'terms/' .. name, 'last/' .. name, 'paused/' .. name)
if known[1] ~= ARGV[2] or known[2] ~= ARGV[3] or known[3] ~= ARGV[4] or known[4] then return 0 end
local time = redis.call('TIME')
if tonumber(ARGV[5]) > time[1] * 1000 + math.floor(time[2] / 1000) then return 0 end
local at = 6
while at <= #ARGV do
  local count = tonumber(ARGV[at])
  redis.call('XADD', stream, '*', unpack(ARGV, at + 1, at + count))
  at = at + 1 + count
end
redis.call('HSET', crons, 'last/' .. name, ARGV[5])
return 1
