-- Commits the offset of a group for one partition. Atomic with the fence check: a former owner must not move the
-- offset of the current one. A committed offset never decreases.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), offsets …:offsets (hash)
-- ARGV  run (of the server), group, member, fence, next (offset)
-- RETURNS 1, or 0 if the member does not own the partition
-- BOUND constant
local lease, offsets = KEYS[1], KEYS[2]
local run, group, member, fence, next = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])

if not held(lease, member, fence, run) then return 0 end
local known = tonumber(call('HGET', offsets, group) or '-1')
if known < next then call('HSET', offsets, group, whole(next)) end
return 1
