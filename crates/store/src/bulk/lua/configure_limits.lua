-- bulk configure_limits: replaces the limits set at run time, if nobody else did so meanwhile. Atomic, so that the record
-- and the limits in effect agree.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: the version that was changed, the record (JSON), what it overrides (JSON)
-- RETURNS  facts, then ok, or stale if the record has another version
-- BOUND  the queues, a thousand held groups, and a thousand of each queue
local version, text, over = next_number(), next_arg(), next_arg()
local L = limits_of(call('GET', K.limits))
if retried and L.req == request then return { nothing(), 'ok' } end
if L.v ~= version then return { nothing(), 'stale' } end
enforce({ v = version + 1, text = text, over = cjson.decode(over), req = request })
return { flush(), 'ok' }
