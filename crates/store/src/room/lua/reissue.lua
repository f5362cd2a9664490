-- room reissue: issues another pass to a person whose pass was voided. Atomic, so that only one is issued.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: person
-- RETURNS  signals, then 1 if there was one to issue
-- BOUND  one ticket
local person = ARGV[6]
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h, t = r.h, room.read_one(r, person)
if not t or t.state ~= GRANTED then return { 0, 0 } end
if r.again and t.request == r.request then return { 0, 1 } end
if t.wave > h.voided or t.till <= r.now then return { 0, 0 } end
if h.wave <= h.voided then h.wave = h.voided + 1 end
t.wave, t.at, t.till, t.request = h.wave, r.now, r.now + h.c.pass, r.request
room.changes(r, person)
return room.save(r, { 1 })
