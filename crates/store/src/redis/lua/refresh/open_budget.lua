-- refresh open_budget: makes a budget that is not there: empty, and silent for a second.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load
-- RETURNS  what is known of the day, as budget.save
-- BOUND  one key
local b, again = budget.load(KEYS, ARGV)
if again then return again end
return budget.save(b, {})
