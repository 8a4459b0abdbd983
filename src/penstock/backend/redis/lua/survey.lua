#!lua flags=allow-oom
-- See how a stream stands for a reader that keeps its own position; if asked to, gives it an epoch if it has none.
-- KEYS  stream
-- ARGV  the name of our own group, a token to become the epoch ('': none is given), the id of the reader's position;
--       where entries are wanted, too: from which id on, and how many at most
-- Gives nothing if there is no stream, else: epoch, oldest id and newest id that are there (each '' if none), last id
-- given, highest id deleted, length, how many were ever added, 1 if the entry of that id is there; and the entries, if
-- wanted.
-- Keeps one moment: from numbers of two moments a loss can seem to be none, or none a loss.
-- Uses: facts
local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then return {} end
local ours, epoch
for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
  if facts(row).name == ARGV[1] then ours = true end
end
if ours then
  for _, row in ipairs(redis.call('XINFO', 'CONSUMERS', stream, ARGV[1])) do
    epoch = epoch or string.match(facts(row).name, '^epoch%-(%x+)$')
  end
elseif ARGV[2] ~= '' then
  -- At the largest id it reads nothing, and holds back nobody who looks for the slowest group.
  redis.call('XGROUP', 'CREATE', stream, ARGV[1], '18446744073709551615-18446744073709551615')
end
if not epoch then
  epoch = ARGV[2]
  if epoch ~= '' then redis.call('XGROUP', 'CREATECONSUMER', stream, ARGV[1], 'epoch-' .. epoch) end
end
local info = facts(redis.call('XINFO', 'STREAM', stream))
local oldest, newest = info['first-entry'], info['last-entry']
return {
  epoch, oldest and oldest[1] or '', newest and newest[1] or '', info['last-generated-id'], info['max-deleted-entry-id'],
  info.length, info['entries-added'], #redis.call('XRANGE', stream, ARGV[3], ARGV[3]),
  ARGV[4] and redis.call('XRANGE', stream, ARGV[4], '+', 'COUNT', ARGV[5]),
}
