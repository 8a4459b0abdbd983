#!lua flags=allow-oom
-- Ack entries that are still ours.
-- KEYS  stream, steals, cursors, and starts if any of them may have a start-mark, to remove it
-- ARGV  group, consumer, fence, 'keep' them in the stream, or 'drop' them where nobody else reads it; 'retry': it is a retry
--       stream, where nobody does; the name of our own group; how keys of records begin ('': none are kept), how long
--       they last of what is settled in ms; then entry ids
-- Gives the consumer's counter (or '' if it has none), how many were acked, how many were gone, the ids that others
-- hold, and the ids of those gone that others may have held.
-- Keeps a consumer that was robbed from acking what another one is working on. If nothing was taken since before these
-- were read, all of them are ours; else each is looked up.
-- Uses: less, must_be
local stream, group, me, starts, is_retry = KEYS[1], ARGV[1], ARGV[2], KEYS[4], ARGV[4] == 'retry'
if starts then must_be('hash', starts) end
if ARGV[4] == 'drop' then must_be('hash', KEYS[3]) end
local counter = redis.call('HGET', KEYS[2], me) or ''
local mine, newest, unclear, fenced = {}, nil, {}, {}
if counter == ARGV[3] then
  for i = 8, #ARGV do mine[#mine + 1] = ARGV[i] end
else
  for i = 8, #ARGV do
    local row = redis.call('XPENDING', stream, group, ARGV[i], ARGV[i], 1)[1]
    if not row then
      unclear[#unclear + 1] = ARGV[i]
    elseif row[2] == me then
      mine[#mine + 1] = ARGV[i]
      if not newest or less(newest, ARGV[i]) then newest = ARGV[i] end
    else
      fenced[#fenced + 1] = ARGV[i]
    end
  end
end
local LARGEST = '18446744073709551615-18446744073709551615' -- where ours stands; one that does not is another program's
local function is_read_by_others()
  if redis.call('HLEN', KEYS[3]) > 0 then return true end
  for _, facts in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    -- A group that was moved back is to be given them again; it lost its counters with that.
    if newest and facts[2] == group and less(facts[8], newest) then return true end
    if facts[2] ~= group and (facts[2] ~= ARGV[5] or facts[8] ~= LARGEST) then return true end
  end
  return false
end
local function let_go(id) -- its record was to last for as long as it might wait
  local entry = redis.call('XRANGE', stream, id, id)[1]
  local fields = entry and entry[2] or {}
  for i = 1, #fields, 2 do
    if (fields[i] == 'id' or fields[i] == 'job_id') and #fields[i + 1] == 36 then
      redis.call('PEXPIRE', ARGV[6] .. string.lower(fields[i + 1]), ARGV[7])
    end
  end
end
local acked = 0
if #mine > 0 then
  acked = redis.call('XACK', stream, group, unpack(mine))
  if acked == 0 then redis.call('XPENDING', stream, group) end -- XACK does not tell that the group is gone; this does
  if is_retry and ARGV[6] ~= '' then
    for i = 1, #mine do let_go(mine[i]) end
  end
  if is_retry or ARGV[4] == 'drop' and not is_read_by_others() then redis.call('XDEL', stream, unpack(mine)) end
  if starts then
    local where = is_retry and 'retry/' or 'topic/'
    for i = 1, #mine do redis.call('HDEL', starts, where .. mine[i]) end
  end
end
return {counter, acked, #unclear + #mine - acked, fenced, unclear}
