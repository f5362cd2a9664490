-- Turns foreign entries in a partition into records. Atomic, because entries disappear and return under other ids; a
-- second run finds nothing more.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash)
-- ARGV  now (ms or '')
-- RETURNS the offset of the next record
-- BOUND the foreign entries since the last call; nobody else should write there
local records, head = KEYS[1], KEYS[2]
local now = time(ARGV[1])

return (adopt(records, head, now))
