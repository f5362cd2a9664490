-- refresh lift: ends a hold of a target for every process: what others have seen of it does not bring it back.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load
-- RETURNS  the state of the day, as budget.save, then 1, or 0 if it was not held
-- BOUND  one key
local b, again = budget.load(KEYS, ARGV)
if again then return again end
local held = b.hold > b.now and 1 or 0
if held == 1 then
  b.lifted = math.max(b.lifted, b.hold)
  b.hold = 0
end
return budget.save(b, { held })
