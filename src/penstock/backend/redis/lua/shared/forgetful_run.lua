-- The run of a server that forgets at a restart how much groups have read, as Redis 7.0 does ('' if this account may not
-- ask for it), and whether it may have forgotten what was counted for this note. Of other servers nil and false.
local function forgetful_run(note)
  if redis.REDIS_VERSION_NUM >= 0x070200 then return nil, false end
  local info = redis.pcall('INFO', 'server')
  local run = type(info) == 'string' and string.match(info, 'run_id:(%x+)') or ''
  return run, run == '' or note.run ~= run
end
