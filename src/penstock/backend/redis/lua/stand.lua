#!lua flags=allow-oom
-- Come to where a sequential reader stands; a new reader is placed at its start.
-- KEYS  stream, turn
-- ARGV  group, token, start: an entry id or '$', '1' to create the stream if need be, the name of our own group, a token
--       to become the stream's epoch if it has none, how often the reader was unsubscribed when the caller came
-- Gives {'ok', entry id, how many were ever added up to it (-1 if nobody knows), epoch of the stream of that position,
-- 1 if the group had vanished and was made again there, 1 if the last holder did not leave, the entry that failed last,
-- how often, 1 if it was placed where a snapshot was taken, up to which id entries were deleted one by one before the
-- reader began, how often the reader was unsubscribed}, {'lost', current token}, {'ended'}, or {'shared'} if consumers read with that group.
-- Keeps a reader from passing by anything in silence: what is noted beside the stream outlives it, so on another stream
-- of that name the position is still the one in the old stream, which the caller can tell from the epoch.
-- Uses: facts, less, must_be
local stream, group = KEYS[1], ARGV[1]
must_be('stream', stream)
local turn = redis.call(
  'HMGET', KEYS[2], 'token', 'holder', 'generation', 'at', 'count', 'epoch', 'crashed', 'head', 'failed', 'told',
  'snapshot'
)
if turn[1] ~= ARGV[2] or not turn[2] then return {'lost', turn[1] or ''} end
local unsubscribed = tonumber(turn[3] or 0)
if unsubscribed > tonumber(ARGV[7]) then return {'ended'} end -- fewer: the server has lost its memory, nobody ended it
local function find()
  local theirs, ours, epoch
  for _, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local found = facts(row)
    if found.name == group then theirs = found elseif found.name == ARGV[5] then ours = true end
  end
  for _, row in ipairs(ours and redis.call('XINFO', 'CONSUMERS', stream, ARGV[5]) or {}) do
    epoch = epoch or string.match(facts(row).name, '^epoch%-(%x+)$')
  end
  return theirs, ours, epoch
end
local theirs, ours, epoch = find()
if theirs and theirs.consumers > 0 then return {'shared'} end
local at, count, of, restored, told = turn[4], turn[5] or '-1', turn[6], 0, turn[10] or ''
if not theirs then
  local start = at and '0-0' or ARGV[3] -- of a stream that was made anew, everything is new
  if at and of == epoch then start, restored = at, 1 end
  local create = {'XGROUP', 'CREATE', stream, group, start}
  if ARGV[4] == '1' then create[6] = 'MKSTREAM' end
  local done = redis.pcall(unpack(create))
  if done.err then return done end
  local info = facts(redis.call('XINFO', 'STREAM', stream))
  local id, known = start, '-1'
  -- A start that is not reached yet is the end: behind it, the place would look like one of a server that fell back.
  if not at and (id == '$' or less(info['last-generated-id'], id)) then id = info['last-generated-id'] end
  if restored == 1 then
    known = count
  elseif not info['first-entry'] or not less(id, info['last-generated-id']) then
    known = string.format('%.0f', info['entries-added'])
  elseif less(id, info['first-entry'][1]) then
    known = string.format('%.0f', info['entries-added'] - info.length)
  else
    -- Nobody knows how many lie before it; but what was deleted until now is not missing to who begins now.
    told = info['max-deleted-entry-id']
    redis.call('HSET', KEYS[2], 'told', told)
  end
  -- Without the count the server could tell no lag once the reader is behind.
  if tonumber(known) >= 0 then redis.call('XGROUP', 'SETID', stream, group, id, 'ENTRIESREAD', known) end
  theirs = {['last-delivered-id'] = id, ['entries-read'] = known}
end
if not epoch then
  -- At the largest id our own group reads nothing, and holds back nobody who looks for the slowest group.
  if not ours then redis.call('XGROUP', 'CREATE', stream, ARGV[5], '18446744073709551615-18446744073709551615') end
  epoch = ARGV[6]
  redis.call('XGROUP', 'CREATECONSUMER', stream, ARGV[5], 'epoch-' .. epoch)
end
if not of or of == epoch then
  at, count, of = theirs['last-delivered-id'], theirs['entries-read'] or '-1', epoch
  redis.call('HSET', KEYS[2], 'at', at, 'count', count, 'epoch', of)
end
return {
  'ok', at, count, of, restored, turn[7] == ARGV[2] and 1 or 0, turn[8] or '', tonumber(turn[9] or 0),
  turn[11] and 1 or 0, told, unsubscribed,
}
