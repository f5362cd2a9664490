-- Makes records of what others wrote into a partition. Atomic, because entries go and come back under other ids; run
-- twice it finds nothing more.
-- KEYS  records <prefix>log:{<topic>:<n>}:records (stream), head …:head (hash)
-- ARGV  now (ms or '')
-- RETURNS the offset that the next record gets
-- BOUND the entries that others wrote since the last look; nobody else should write there
local records, head = KEYS[1], KEYS[2]
local now = time(ARGV[1])

return (adopt(records, head, now))
