-- Drops records of a partition.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash)
-- ARGV  next (everything before this offset goes), max (records that may go)
-- RETURNS how many are still to go
-- BOUND max
local records, head = KEYS[1], KEYS[2]
local next, max = tonumber(ARGV[1]), tonumber(ARGV[2])

local start, finish = bounds(head)
next = math.min(next, finish)
local before = math.min(next, start + max)
if start < before then drop_before(records, head, before) end
return math.max(0, next - before)
