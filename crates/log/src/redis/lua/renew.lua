-- Renews the lease of a partition for its owner.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash)
-- ARGV  run (of the server), now (ms or ''), member, fence, span (ms)
-- RETURNS 1, or 0 if another member owns it, the lease is unknown, or it predates the current run of the server
-- BOUND constant
local lease = KEYS[1]
local run, now, member, fence, span = ARGV[1], time(ARGV[2]), ARGV[3], ARGV[4], tonumber(ARGV[5])

if not held(lease, member, fence, run) then return 0 end
call('HSET', lease, 'deadline', whole(now + span))
return 1
