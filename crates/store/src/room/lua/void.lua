-- room void: voids the passes of a wave and all earlier ones. Atomic, so that it never goes back.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: the wave, or "" for all so far
-- RETURNS  signals, then the last void wave
-- BOUND  one key
local through = tonumber(ARGV[6])
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h = r.h
through = math.min(through or h.wave, h.wave)
if through <= h.voided then return { 0, h.voided } end
h.voided = through
room.notify_changed(r)
return room.save(r, { through })
