-- Returns the lag of a group in one partition.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash), offsets …:offsets (hash)
-- ARGV  group
-- RETURNS {start, end, committed offset or -1, time in ms of the first retained record that is not done, or -1}
-- BOUND one record
local records, head, offsets = KEYS[1], KEYS[2], KEYS[3]
local group = ARGV[1]

local start, finish = bounds(head)
local committed = tonumber(call('HGET', offsets, group) or '-1')
local next = math.max(start, committed)
local oldest = -1
if next < finish then oldest = appended_at(records, next) or -1 end
return { start, finish, committed, oldest }
