-- refresh look_budget: the whole state of a budget.
-- KEYS  <prefix>rate:{<target>}
-- ARGV  as budget.load
-- RETURNS  the time and how far it is ahead of the server's clock (ms), both buckets (level in thousandths, minted
--   until), both reservations (tokens, until), what low is owed, the day with its calls and those of low, the hold
-- BOUND  one key
local b = budget.load(KEYS, ARGV)
return { b.now, b.offset, b.all, b.all_at, b.low, b.low_at, b.high_ask, b.high_until, b.low_ask, b.low_until, b.credit, b.day,
  b.used, b.used_low, b.hold }
