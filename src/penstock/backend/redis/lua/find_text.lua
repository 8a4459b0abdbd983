#!lua flags=no-writes
-- Look for entries that mention a text, such as a message's UUID, in any of their values.
-- KEYS  stream
-- ARGV  the text in lower case, XRANGE or XREVRANGE, from where, to where, most entries to look at, most bytes
-- Gives the ids of the first few, in the order of the search.
-- Keeps the server free: it ends after so many entries or bytes, wherever it is then.
local text, read, from, most, room = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[6])
local upper = string.upper(text)
local found, page = {}, 1
local function mentions(fields)
  local size, hit = 0, false
  for i = 2, #fields, 2 do
    local value = fields[i]
    size = size + #value
    hit = hit or string.find(value, text, 1, true) or string.find(value, upper, 1, true)
      or (#value == #text and string.lower(value) == text)
  end
  return size, hit
end
while most > 0 and room > 0 and #found < 8 do
  local asked, seen = math.min(page, most), 0
  local entries = redis.call(read, KEYS[1], from, ARGV[4], 'COUNT', asked)
  for _, entry in ipairs(entries) do
    local size, hit = mentions(entry[2])
    seen = seen + size
    if hit then found[#found + 1] = entry[1] end
  end
  if #entries < asked then break end
  from, most, room = '(' .. entries[#entries][1], most - asked, room - seen
  -- By what they weigh so far: a hundred entries of a MiB each must not be in memory at once.
  page = math.max(1, math.min(100, 4 * page, math.floor(65536 * asked / math.max(seen, 1))))
end
return found
