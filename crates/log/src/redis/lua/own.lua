-- Takes a partition for a member of a group, if it is free or its owner was not heard of in time. Atomic, because
-- there may be only one owner. Run twice it answers the same.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), marks …:marks (hash), head …:head (hash),
--       groups …:groups (set)
-- ARGV  now (ms or ''), group, member, span (ms that the lease lasts)
-- RETURNS {fence, first offset that is kept and not done}, or {0, 0} if another has it
-- BOUND constant
local lease, marks, head, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, group, member, span = time(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local found = call('HMGET', lease, 'owner', 'fence', 'deadline')
local owner, fence, deadline = found[1], tonumber(found[2] or '0'), tonumber(found[3] or '0')
if owner and owner ~= '' and owner ~= member and now < deadline then return { 0, 0 } end
if owner ~= member then fence = fence + 1 end
call('HSET', lease, 'owner', member, 'fence', whole(fence), 'deadline', whole(now + span))
-- Known from now on: what it is not done with stays.
call('SADD', groups, group)
local start = bounds(head)
return { fence, math.max(start, tonumber(call('HGET', marks, group) or '0')) }
