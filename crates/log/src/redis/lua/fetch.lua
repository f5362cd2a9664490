-- Reads records of a partition for its owner. Atomic with the lease check: the next offsets on a restarted server
-- need not continue what the owner read before.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), records …:records (stream)
-- ARGV  run (of the server), member, fence, from (offset), to (id or '+'), max (entries)
-- RETURNS the entries as XRANGE does, or nothing if the member does not own the partition
-- BOUND max
local lease, records = KEYS[1], KEYS[2]
local run, member, fence, from, to, max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if not held(lease, member, fence, run) then return false end
return call('XRANGE', records, from .. '-0', to, 'COUNT', max)
