#!lua flags=no-writes
-- See how a topic stands, and some of its groups.
-- KEYS  topic, dead, later, cursors, groups, paused, then for each group: parked, retry, turn
-- ARGV  the name of our own group, most bytes of entries to look at, then for each group: its name, its field in groups
-- Gives the time in ms; the topic (nothing if there is none): length, how many were ever added, first id, last id, last
-- deleted id, epoch or ''; dead letters; messages for later and when the next is due; cursors; the names of all groups but
-- our own; each group that was asked for and is there; how many were looked for, fewer if the entries on the way are
-- large; the run id of the server, where watch.lua noted one of it: it forgets at a restart how much groups have read. A
-- number that is not known is -1, a text ''.
-- Keeps its cost bound to the number of groups: whatever it looks up it finds at once, at one end.
-- Uses: facts, forgetful_run, less
local topic = KEYS[1]
local function rows_by_name(stream)
  local found, names = {}, {}
  for i, row in ipairs(redis.call('EXISTS', stream) == 1 and redis.call('XINFO', 'GROUPS', stream) or {}) do
    local one = facts(row)
    found[one.name], names[i] = one, one.name
  end
  return found, names
end
local function first_due(set) -- when the member with the lowest score is due, and that member
  local found = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  return found[2] and math.floor(math.max(0, math.min(tonumber(found[2]), 1e15))) or -1, found[1]
end
local function last_value(parcel) -- each value stands behind its length
  local at, value = 1, ''
  local fine = pcall(function()
    while at <= #parcel do value, at = struct.unpack('>I4c0', parcel, at) end
  end)
  return fine and value or ''
end

local time = redis.call('TIME')
local known, names = rows_by_name(topic)
local stream, epoch, others = {}, '', {}
for _, name in ipairs(names) do
  -- Ours stands at the largest id. If another program has a group of that name, it is one as any other.
  local last = known[name]['last-delivered-id']
  if name ~= ARGV[1] or last ~= '18446744073709551615-18446744073709551615' then others[#others + 1] = name end
end
if known[ARGV[1]] then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', topic, ARGV[1])) do
    epoch = string.match(facts(row).name, '^epoch%-(%x+)$') or epoch
  end
end
if redis.call('EXISTS', topic) == 1 then
  local info = facts(redis.call('XINFO', 'STREAM', topic))
  stream = {
    info.length, info['entries-added'], info['recorded-first-entry-id'], info['last-generated-id'],
    info['max-deleted-entry-id'], epoch,
  }
end
local bytes = 0 -- that had to be copied: the server gives no id without its entry
local function first_entry(key, from)
  local found = redis.call('XRANGE', key, from, '+', 'COUNT', 1)[1]
  for _, value in ipairs(found and found[2] or {}) do bytes = bytes + #value end
  return found
end
local unread = {} -- by the last id delivered: groups that stand together need one look
local function next_id(last)
  if not less(last, stream[4]) then return '' end
  if not unread[last] then
    local found = first_entry(topic, '(' .. last)
    unread[last] = found and found[1] or ''
  end
  return unread[last]
end
local function retries(retry, group)
  local own = rows_by_name(retry)[group]
  if not own then return {-1, redis.call('XLEN', retry), ''} end
  local first = first_entry(retry, '-')
  return {own.pending, redis.call('XLEN', retry), first and first[2][#first[2]] or ''}
end
local function turn_in(hash) -- by HGET: accounts of workers may run that, and need not be given more
  local found = {redis.call('HGET', hash, 'token')}
  for i, field in ipairs(found[1] and {'holder', 'until', 'head', 'failed'} or {}) do
    found[i + 1] = redis.call('HGET', hash, field)
  end
  return found
end
local groups, looked_for, run_noted = {}, 0, false
for i = 3, #ARGV, 2 do
  if bytes > tonumber(ARGV[2]) then break end
  looked_for = looked_for + 1
  local own = 3 + 3 * looked_for -- six keys are of all, three of each group before
  local group, parked, retry = known[ARGV[i]], KEYS[own + 1], KEYS[own + 2]
  if group then
    local last = group['last-delivered-id']
    local oldest = group.pending > 0 and redis.call('XPENDING', topic, group.name, '-', '+', 1)[1]
    local due, parcel = first_due(parked)
    bytes = bytes + (parcel and #parcel or 0)
    local note = redis.call('HGET', KEYS[5], ARGV[i + 1]) or ''
    run_noted = run_noted or string.find(note, '"run":"%x')
    groups[#groups + 1] = {
      group.name, last, group['entries-read'] or -1, note, next_id(last),
      group.pending, oldest and oldest[1] or '', redis.call('SISMEMBER', KEYS[6], group.name),
      redis.call('ZCARD', parked), due, parcel and last_value(parcel) or '', retries(retry, group.name),
      turn_in(KEYS[own + 3]),
    }
  end
end
-- Asked for only where it matters: accounts of some workers may not, and what they are refused is on record.
local run = run_noted and forgetful_run({}) or ''
return {
  time[1] * 1000 + math.floor(time[2] / 1000), stream, redis.call('XLEN', KEYS[2]), redis.call('ZCARD', KEYS[3]),
  (first_due(KEYS[3])), redis.call('HGETALL', KEYS[4]), others, groups, looked_for, run,
}
