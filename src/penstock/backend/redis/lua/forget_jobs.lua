#!lua flags=allow-oom
-- Forget what is kept of jobs in a lane, or only count it.
-- KEYS  records of jobs, or notes of who stands for a key
-- ARGV  the number of the lane, how keys of records begin, '1' to forget
-- Gives how many there are.
-- Keeps what is kept of a job that has moved to another lane meanwhile: the look and the removal are one step.
local count = 0
for _, key in ipairs(KEYS) do
  local kind, place = redis.call('TYPE', key).ok, nil
  if kind == 'hash' then
    place = redis.call('HGET', key, 'at')
  elseif kind == 'string' then
    local id, put = string.match(redis.call('GET', key), '^(%S+) (.*)$')
    local moved = id and redis.pcall('HGET', ARGV[2] .. id, 'at')
    place = type(moved) == 'string' and moved or put
  end
  if place and string.match(place, '^%a+ (%d+) ') == ARGV[1] then
    count = count + 1
    if ARGV[3] == '1' then redis.call('UNLINK', key) end
  end
end
return count
