-- The fields and values that a parcel holds behind so many bytes; an error if it is not made of such.
local function values_of(parcel, lead)
  local values, at, value = {}, 1 + lead, nil
  while at <= #parcel do
    value, at = struct.unpack('>I4c0', parcel, at)
    values[#values + 1] = value
  end
  assert(#values > 0 and #values % 2 == 0)
  return values
end
