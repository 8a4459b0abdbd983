#!lua flags=allow-oom
-- Drop old entries that every group and every durable cursor is done with.
-- KEYS  stream, cursors
-- ARGV  floor: what is older may go, most entries to look at, a group that reads nothing and pins nothing, how many
--       entries may stay however young they are ('-1': all)
-- Gives the horizon; what pins it ('group', 'cursor', 'nobody' if none reads the stream yet, or '' for the floor) and the
-- name of that; how many entries were dropped.
-- Keeps what anybody may still need: the horizon and the trimming are one step, so no group can appear in between. The
-- count is taken in the same step too: those who trim beside each other drop what is too many once.
-- Uses: facts, less
local stream, floor, most = KEYS[1], ARGV[1], tonumber(ARGV[2])
local settled, pin, name = nil, '', '' -- up to there everybody is done
local function hold(id, kind, of)
  if not settled or less(id, settled) then settled, pin, name = id, kind, of end
end
if redis.call('EXISTS', stream) == 0 then return {'0-0', '', '', 0} end
local epochs
local function is_epoch(token)
  if not epochs then
    local rows = redis.pcall('XINFO', 'CONSUMERS', stream, ARGV[3])
    epochs = {}
    for _, row in ipairs(rows.err and {} or rows) do epochs[row[2]] = true end
  end
  return epochs['epoch-' .. token]
end
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  local group = facts(row)
  -- Ours stands at the largest id. If another program has a group of that name, it needs what it has not read.
  if group['name'] ~= ARGV[3] or group['last-delivered-id'] ~= '18446744073709551615-18446744073709551615' then
    -- Both: a group that was moved back is to be given entries before the oldest one that it holds.
    hold(group['last-delivered-id'], 'group', group['name'])
    if group['pending'] > 0 then
      hold(redis.call('XPENDING', stream, group['name'], '-', '+', 1)[1][1], 'group', group['name'])
    end
  end
end
local cursors = redis.call('HGETALL', KEYS[2])
for i = 1, #cursors, 2 do
  local id, of = string.match(cursors[i + 1], '^(%d+%-%d+)$'), ''
  if not id then id, of = string.match(cursors[i + 1], '^(%d+%-%d+) (%x*) ') end
  if not id then
    return redis.error_reply('ERR the cursor ' .. cursors[i] .. ' of ' .. stream .. ' holds no entry id')
  end
  -- One of an earlier stream has read nothing of this one.
  hold((of == '' or is_epoch(of)) and id or '0-0', 'cursor', cursors[i])
end
if not settled then return {'0-0', 'nobody', '', 0} end
local function trim(horizon, limit)
  return limit > 0 and redis.call('XTRIM', stream, 'MINID', '~', horizon, 'LIMIT', limit) or 0 -- 0 would mean no limit
end
if less(settled, floor) then return {settled, pin, name, trim(settled, most)} end
local removed = trim(floor, most)
local excess = ARGV[4] == '-1' and 0 or redis.call('XLEN', stream) - ARGV[4]
if excess <= 0 then return {floor, '', '', removed} end
return {settled, pin, name, removed + trim(settled, math.min(excess, most - removed))}
