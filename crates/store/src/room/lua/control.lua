-- room control: opens, pauses or closes the room. Atomic, so that it signals once.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: 1 open, 2 paused, 3 closed
-- RETURNS  signals
-- BOUND  one key
local status = tonumber(ARGV[6])
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
if r.h.status == status then return { 0 } end
r.h.status = status
room.notify_changed(r)
return room.save(r, {})
