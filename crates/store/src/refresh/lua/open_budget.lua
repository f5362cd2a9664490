-- refresh open_budget: creates a missing budget: empty, and without grants for a second.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load
-- RETURNS  the state of the day, as budget.save
-- BOUND  one key
local b, again = budget.load(KEYS, ARGV)
if again then return again end
return budget.save(b, {})
