-- bulk limits: the rates in effect, and who changed them; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua
-- RETURNS  the rates (see rates.lua), the limit per window, the length of a window (ms)
-- BOUND  the queues and the remembered changes
return { stored_limits(cjson.decode(call('GET', K.settings)), limits_of(call('GET', K.limits))), rate.widest(), C.window }
