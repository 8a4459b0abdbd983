#!lua flags=allow-oom
-- Find out whether the account may do all that sink_open and sink_note do.
-- KEYS  stream, valve
-- ARGV  '1' if they note ids
-- Gives 1 or 0.
-- Keeps them from failing half way: between rows and their note, or with the stream closed. Changes nothing: the valve
-- is a key that is there only within a script or a transaction, and the stream gets the last id that it has.
-- Uses: facts
local stream, valve = KEYS[1], KEYS[2]
local function may(...)
  local reply = redis.pcall(...)
  return type(reply) ~= 'table' or not reply.err or string.find(reply.err, 'no such key') ~= nil
end
local kind, last = redis.call('TYPE', stream).ok, '0-1'
if not (may('DEL', valve) and redis.acl_check_cmd('DEL', stream)) then return 0 end
if not (may('HSET', valve, 'done', '') and may('HGET', valve, 'done') and may('PEXPIRE', valve, 60000)) then return 0 end
redis.call('DEL', valve)
local function may_note() return may('SADD', valve, '') and may('SMISMEMBER', valve, '') and may('SREM', valve, '') end
if ARGV[1] == '1' and not may_note() then return 0 end
redis.call('DEL', valve)
if kind ~= 'stream' and kind ~= 'none' then return 1 end
if not may('XINFO', 'STREAM', stream) or not may('XLEN', stream) then return 0 end
if kind == 'stream' then
  last = facts(redis.call('XINFO', 'STREAM', stream))['last-generated-id']
end
return may('XSETID', stream, last) and 1 or 0
