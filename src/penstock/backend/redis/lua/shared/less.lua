-- Whether an entry id comes before another: as digit strings, for doubles lose the low digits of 64-bit ids.
local function less(a, b)
  local left, right = {string.match(a, '^0*(%d+)-0*(%d+)$')}, {string.match(b, '^0*(%d+)-0*(%d+)$')}
  for i = 1, 2 do
    if #left[i] ~= #right[i] then return #left[i] < #right[i] end
    if left[i] ~= right[i] then return left[i] < right[i] end
  end
  return false
end
