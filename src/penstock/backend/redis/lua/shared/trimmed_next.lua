-- The entry that was to be read next when this was noted, if it was trimmed since, and not read: so much is certain where
-- nobody can count what is lost.
local function trimmed_next(note, last, whole)
  local next = note.next
  if next and less(last, next) and (whole.length == 0 or less(next, whole['recorded-first-entry-id'])) then return next end
end
