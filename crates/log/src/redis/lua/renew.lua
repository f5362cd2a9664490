-- Keeps a partition for its owner.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash)
-- ARGV  now (ms or ''), member, fence, span (ms)
-- RETURNS 1, or 0 if another has it or the lease is unknown
-- BOUND constant
local lease = KEYS[1]
local now, member, fence, span = time(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

if not held(lease, member, fence) then return 0 end
call('HSET', lease, 'deadline', whole(now + span))
return 1
