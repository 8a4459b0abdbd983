#!lua flags=allow-oom
-- Drop old entries that every group and every durable cursor is done with.
-- KEYS  stream, cursors
-- ARGV  floor: the oldest id to keep in any case, most entries to look at, a group that reads nothing and pins nothing
-- Gives the horizon, what pins it ('group <name>', 'cursor <name>', or '' for the floor), how many entries were dropped.
-- Keeps what anybody may still need: the horizon and the trimming are one step, so no group can appear in between.
local stream = KEYS[1]
local horizon, pin, known = ARGV[1], '', false
local function parts(id)
  local ms, seq = string.match(id, '^0*(%d+)-0*(%d+)$')
  return {ms, seq}
end
local function less(a, b) -- as digit strings: doubles lose the low digits of 64-bit ids
  local left, right = parts(a), parts(b)
  for i = 1, 2 do
    if #left[i] ~= #right[i] then return #left[i] < #right[i] end
    if left[i] ~= right[i] then return left[i] < right[i] end
  end
  return false
end
local function hold(id, name)
  known = true
  if less(id, horizon) then horizon, pin = id, name end
end
if redis.call('EXISTS', stream) == 0 then return {'0-0', '', 0} end
for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = {}
  for i = 1, #facts, 2 do group[facts[i]] = facts[i + 1] end
  if group['name'] ~= ARGV[3] then
    local id = group['last-delivered-id']
    if group['pending'] > 0 then id = redis.call('XPENDING', stream, group['name'], '-', '+', 1)[1][1] end
    hold(id, 'group ' .. group['name'])
  end
end
local cursors = redis.call('HGETALL', KEYS[2])
for i = 1, #cursors, 2 do
  if not string.match(cursors[i + 1], '^%d+-%d+$') then
    return redis.error_reply('ERR the cursor ' .. cursors[i] .. ' of ' .. stream .. ' holds no entry id')
  end
  hold(cursors[i + 1], 'cursor ' .. cursors[i])
end
if not known then return {'0-0', 'nobody reads it yet', 0} end
return {horizon, pin, redis.call('XTRIM', stream, 'MINID', '~', horizon, 'LIMIT', ARGV[2])}
