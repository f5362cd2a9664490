-- bulk adopt_limits: applies the limits of another shard, unless this one has later ones already. Atomic, so that an
-- older version never replaces a newer one.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: version, the record (JSON), what it overrides (JSON)
-- RETURNS  facts
-- BOUND  the queues, a thousand held groups, and a thousand of each queue
local version, text, over = next_number(), next_arg(), next_arg()
if limits_of(call('GET', K.limits)).v >= version then return { nothing() } end
enforce({ v = version, text = text, over = cjson.decode(over) })
return { flush() }
