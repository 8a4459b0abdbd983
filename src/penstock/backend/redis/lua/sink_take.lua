#!lua
-- Become the one attempt that writes a part of a batch under a fence.
-- KEYS  fence
-- ARGV  part, batch, token of this attempt, how long to remember in ms
-- Gives {'done'}, {'ahead', batch} if a newer one is done or has begun, or {'taken', rows written already, digest of
-- them, value to expect}.
-- Keeps an older attempt from writing on: it expects a value that is not there any more.
local fence, part, batch, token = KEYS[1], ARGV[1], tonumber(ARGV[2]), ARGV[3]
local held = redis.call('HMGET', fence, 'done', part)
local done = string.match(held[1] or '', '^%d+')
if done and tonumber(done) > batch then return {'ahead', done} end
if done and tonumber(done) == batch then return {'done'} end
local at, rows, digest = string.match(held[2] or '', '^(%d+) (%d+) (%x*) ')
if at and tonumber(at) > batch then return {'ahead', at} end
if not at or tonumber(at) < batch then rows, digest = '0', '' end
local value = ARGV[2] .. ' ' .. rows .. ' ' .. digest .. ' ' .. token
redis.call('HSET', fence, part, value)
redis.call('PEXPIRE', fence, ARGV[4])
return {'taken', rows, digest, value}
