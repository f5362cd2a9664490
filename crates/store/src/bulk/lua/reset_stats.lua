-- bulk reset_stats: clears a group's congestion statistics and their history, which belong together.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group
-- RETURNS  facts, then ok or no group
-- BOUND  one group
local g = find_group(next_arg())
if not g then return { nothing(), 'no group' } end
clear_stats(g)
return { flush(), 'ok' }
