-- Reads records of a partition for its owner. Atomic with the look at the lease: what a server that was started again
-- has under the next offsets does not follow what was read before.
-- KEYS  lease <prefix>log:{<topic>:<n>}:lease:<group> (hash), records …:records (stream)
-- ARGV  run (of the server), member, fence, from (offset), to (id or '+'), max (entries)
-- RETURNS the entries as XRANGE does, or nothing if the partition is not the member's
-- BOUND max
local lease, records = KEYS[1], KEYS[2]
local run, member, fence, from, to, max = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

if not held(lease, member, fence, run) then return false end
return call('XRANGE', records, from .. '-0', to, 'COUNT', max)
