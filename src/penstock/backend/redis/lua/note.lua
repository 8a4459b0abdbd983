#!lua flags=allow-oom
-- Write to the records of jobs, and see whether they are to be cancelled.
-- KEYS  records
-- ARGV  how long they last in ms, then per record: how many fields and values, and these
-- Gives for each record what its field 'cancel' says, or ''.
-- Keeps a record from lasting less long than it would without this.
local asked, at = {}, 2
for i = 1, #KEYS do
  local count = tonumber(ARGV[at])
  if count > 0 then
    redis.call('HSET', KEYS[i], unpack(ARGV, at + 1, at + count))
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[i], ARGV[1]) end
  end
  asked[i] = redis.call('HGET', KEYS[i], 'cancel') or ''
  at = at + count + 1
end
return asked
