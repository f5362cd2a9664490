-- bulk limits: the limits set at run time, and the settings that they override; read-only.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua
-- RETURNS  the version of the record, the record (JSON) or "", the settings (JSON) or "", the time (ms)
-- BOUND  the queues and the remembered changes
local L = limits_of(call('GET', K.limits))
return { L.v, L.text, call('GET', K.compared) or '', now }
