#!lua flags=no-writes
-- Look for entries in which a text, such as a message's UUID, is a value, or is mentioned in one.
-- KEYS  stream
-- ARGV  the text in lower case, XRANGE or XREVRANGE, from where, to where, most entries to look at, most bytes, where
--       each field counts as 100 more than it has
-- Gives the ids of the first few in which it is a value, and then of the first few that mention it, in the order of the
-- search.
-- Keeps the server free: it ends after so many entries or bytes, wherever it is then. What mentions the text does not
-- end it: many entries may refer to the one that is looked for.
local text, read, from, most, room = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local upper, enough, field_cost = string.upper(text), 8, 100 -- a small value costs as much time as so many bytes
local equal, mentioned, page = {}, {}, 1
local function look(fields)
  local size, is_value, is_mentioned = 0, false, false
  for i = 2, #fields, 2 do
    local value = fields[i]
    size = size + #fields[i - 1] + #value + field_cost
    if #value == #text then
      is_value = is_value or string.lower(value) == text
    else
      is_mentioned = is_mentioned or string.find(value, text, 1, true) or string.find(value, upper, 1, true)
    end
  end
  return size, is_value, is_mentioned
end
while most > 0 and room > 0 and #equal < enough do
  local asked, seen = math.min(page, most), 0
  local entries = redis.call(read, KEYS[1], from, ARGV[4], 'COUNT', asked)
  for _, entry in ipairs(entries) do
    local size, is_value, is_mentioned = look(entry[2])
    seen = seen + size
    local found = is_value and equal or is_mentioned and mentioned
    if found and #found < enough then found[#found + 1] = entry[1] end
  end
  if #entries < asked then break end
  from, most, room = '(' .. entries[#entries][1], most - asked, room - seen
  -- By what they weigh so far: a hundred entries of a MiB each must not be in memory at once.
  page = math.max(1, math.min(100, 4 * page, math.floor(65536 * asked / math.max(seen, 1))))
end
for _, id in ipairs(mentioned) do
  if #equal < enough then equal[#equal + 1] = id end
end
return equal
