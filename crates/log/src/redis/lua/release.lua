-- Releases a partition. The fence stays, so that the next owner gets a higher one.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash)
-- ARGV  member
-- RETURNS 1, or 0 if the member did not own it
-- BOUND constant
local lease = KEYS[1]
local member = ARGV[1]

if call('HGET', lease, 'owner') ~= member then return 0 end
call('HSET', lease, 'owner', '', 'deadline', '0')
return 1
