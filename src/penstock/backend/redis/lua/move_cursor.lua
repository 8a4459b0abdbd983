#!lua flags=allow-oom
-- Move a durable cursor up to where its reader is done.
-- KEYS  stream, cursors
-- ARGV  cursor, entry id, the stream's epoch, how many entries were ever added up to that id, the name of our own group
-- Gives 'moved', 'ahead' (it was there or further), 'other' (not that stream any more), 'forgotten' (no such cursor).
-- Keeps it from going back in its stream, from passing anything by on another one, and from coming back once removed.
-- Where it stands behind the stream's last id, the server has fallen back, and it goes back with it.
-- Uses: facts, less
local held = redis.call('HGET', KEYS[2], ARGV[1])
if not held then return 'forgotten' end
local ours, epoch = false, nil
if redis.call('EXISTS', KEYS[1]) == 0 then return 'other' end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  if row[2] == ARGV[5] then ours = true end
end
for _, row in ipairs(ours and redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[5]) or {}) do
  epoch = epoch or string.match(row[2], '^epoch%-(%x+)$')
end
if epoch ~= ARGV[3] then return 'other' end
local function is_lost(id)
  return less(facts(redis.call('XINFO', 'STREAM', KEYS[1]))['last-generated-id'], id)
end
local id, of = string.match(held, '^(%d+%-%d+) ?(%x*)')
-- One that knows no stream yet is no further than the same id of this one.
local is_ahead = id and not less(id, ARGV[2]) and (of == epoch or (of == '' and id ~= ARGV[2]))
if is_ahead and not is_lost(id) then return 'ahead' end
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2] .. ' ' .. epoch .. ' ' .. ARGV[4])
return 'moved'
