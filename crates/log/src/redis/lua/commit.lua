-- Stores the mark of a group for one partition. Atomic with the look at the fence: an owner that lost the
-- partition must not move the mark of the one that has it. A mark never goes back.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), marks …:marks (hash)
-- ARGV  run (of the server), group, member, fence, next (offset)
-- RETURNS 1, or 0 if the partition is not the member's
-- BOUND constant
local lease, marks = KEYS[1], KEYS[2]
local run, group, member, fence, next = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

if not held(lease, member, fence, run) then return 0 end
local known = tonumber(call('HGET', marks, group) or '-1')
if known < next then call('HSET', marks, group, whole(next)) end
return 1
