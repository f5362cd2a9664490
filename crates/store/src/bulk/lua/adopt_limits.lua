-- bulk adopt_limits: applies the rates of another shard, unless this one has later ones already. Atomic, so that an
-- older version never replaces a newer one.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: version, record of rates (JSON)
-- RETURNS  facts
-- BOUND  the queues, and a thousand groups held in this window
local version, record = next_number(), next_arg()
if limits_of(call('GET', K.limits)).v >= version then return { nothing() } end
enforce(cjson.decode(call('GET', K.settings)), limits_from(record, version))
return { flush() }
