-- Takes the lease of a partition for a member of a group, if it is free or expired. Atomic, because there may be only
-- one owner. Idempotent.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), offsets …:offsets (hash), head …:head (hash),
--       groups …:groups (set)
-- ARGV  run (of the server), now (ms or ''), group, member, span (ms that the lease lasts)
-- RETURNS {fence, first retained offset that is not done}, or {0, 0} if another member owns it
-- BOUND constant
local lease, offsets, head, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, now, group, member, span = ARGV[1], time(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local found = call('HMGET', lease, 'owner', 'fence', 'deadline', 'run')
local owner, fence, deadline = found[1], tonumber(found[2] or '0'), tonumber(found[3] or '0')
if owner and owner ~= '' and owner ~= member and now < deadline then return { 0, 0 } end
-- The fence follows the clock: a restarted server may have lost fences, and none may occur twice.
if owner ~= member or found[4] ~= run then fence = math.max(fence + 1, now) end
call('HSET', lease, 'owner', member, 'fence', whole(fence), 'deadline', whole(now + span), 'run', run)
-- Register the group: from here on, records that it is not done with stay.
call('SADD', groups, group)
local start, finish = bounds(head)
local committed = tonumber(call('HGET', offsets, group) or '0')
-- Beyond the end, the offset covers records that the server lost; the records that replace them are not done.
if finish < committed then
  committed = finish
  call('HSET', offsets, group, whole(committed))
end
return { fence, math.max(start, committed) }
