-- refresh hold: holds all calls to the target for a while. A shorter hold never ends a longer one.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load, then: duration (ms)
-- RETURNS  the state of the day, as budget.save
-- BOUND  one key
local lasts = tonumber(ARGV[18])
local b, again = budget.load(KEYS, ARGV)
if again then return again end
b.hold = math.max(b.hold, b.now + lasts)
return budget.save(b, {})
