-- refresh take: takes tokens of a target's budget. Atomic, so that all processes together keep to one rate.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load, then: h or l, maximum tokens
-- RETURNS  the state of the day, then 1, tokens and how long they are valid (ms), or 0, how long to wait (ms) and
--   what for: 1 rate, 2 low cap, 3 day, 4 hold
-- BOUND  one key
local priority, most = ARGV[18], tonumber(ARGV[19])
local b, again = budget.load(KEYS, ARGV)
if again then return again end
return budget.save(b, budget.take(b, priority, most))
