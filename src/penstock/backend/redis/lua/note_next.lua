#!lua flags=allow-oom
-- Note what comes next for a group of which nobody can count how much it has read, right behind its read.
-- KEYS  for each stream: the stream, its groups
-- ARGV  group, then for each stream the group's field in groups
-- Gives nothing.
-- Keeps a loss from being passed by in silence: what is trimmed before the next read was to come next, and not read.
-- Uses: facts, less
local group = ARGV[1]
local function note_next(stream, groups, field)
  local text = redis.call('HGET', groups, field)
  local noted, note = pcall(cjson.decode, text or '')
  if not noted or type(note) ~= 'table' then return end -- nobody watches
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local found = facts(row)
    if found.name == group then
      local last = found['last-delivered-id']
      if note.next and less(last, note.next) then return end -- it is, or nobody has told yet that it was trimmed
      local entry = redis.call('XRANGE', stream, '(' .. last, '+', 'COUNT', 1)[1]
      note.next = entry and entry[1]
      redis.call('HSET', groups, field, cjson.encode(note))
    end
  end
end
for i = 1, #KEYS / 2 do pcall(note_next, KEYS[2 * i - 1], KEYS[2 * i], ARGV[i + 1]) end
