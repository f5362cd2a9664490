-- room leave: the person leaves, in whatever state. Atomic, so that a slot is freed once.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: person
-- RETURNS  signals, then 2 and how it ended, 4 unknown
-- BOUND  one ticket
local HAS_ENDED, UNKNOWN = 2, 4
local person = ARGV[6]
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local n, t = r.h.n, room.read_one(r, person)
if not t then return { 0, UNKNOWN } end
if t.state == ENDED then return { 0, HAS_ENDED, t.how } end
if t.state <= WAITING then n.left = n.left + 1 else n.left_inside = n.left_inside + 1 end
room.finish(r, person, t, LEFT)
return room.save(r, { HAS_ENDED, LEFT })
