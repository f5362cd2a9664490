-- Takes a partition for a member of a group, if it is free or its owner was not heard of in time. Atomic, because
-- there may be only one owner. Run twice it answers the same.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), marks …:marks (hash), head …:head (hash),
--       groups …:groups (set)
-- ARGV  run (of the server), now (ms or ''), group, member, span (ms that the lease lasts)
-- RETURNS {fence, first offset that is kept and not done}, or {0, 0} if another has it
-- BOUND constant
local lease, marks, head, groups = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local run, now, group, member, span = ARGV[1], time(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

local found = call('HMGET', lease, 'owner', 'fence', 'deadline', 'run')
local owner, fence, deadline = found[1], tonumber(found[2] or '0'), tonumber(found[3] or '0')
if owner and owner ~= '' and owner ~= member and now < deadline then return { 0, 0 } end
-- Follows the clock: a server that was started again may have forgotten fences, and none may come twice.
if owner ~= member or found[4] ~= run then fence = math.max(fence + 1, now) end
call('HSET', lease, 'owner', member, 'fence', whole(fence), 'deadline', whole(now + span), 'run', run)
-- Known from now on: what it is not done with stays.
call('SADD', groups, group)
local start, finish = bounds(head)
local mark = tonumber(call('HGET', marks, group) or '0')
-- Beyond the end it is of records that the server has forgotten; those that come in their place are not done.
if finish < mark then
  mark = finish
  call('HSET', marks, group, whole(mark))
end
return { fence, math.max(start, mark) }
