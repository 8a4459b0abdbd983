-- What a key is: of the right type, or 'none'. If it is of another one, the script ends: before the first write, for Lua
-- does not roll back.
local function must_be(right, key)
  local kind = redis.call('TYPE', key).ok
  if kind ~= right and kind ~= 'none' then
    error({err = 'WRONGTYPE ' .. key .. ' is a ' .. kind .. ', not a ' .. right})
  end
  return kind
end
