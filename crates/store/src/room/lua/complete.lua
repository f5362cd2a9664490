-- room complete: completes a visit; frees the slot, the seat stays taken. Atomic and idempotent.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: person
-- RETURNS  signals, then 2 and how it ended, 3 not inside, 4 unknown
-- BOUND  one ticket
local HAS_ENDED, NOT_INSIDE, UNKNOWN = 2, 3, 4
local person = ARGV[6]
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local t = room.read_one(r, person)
if not t then return { 0, UNKNOWN } end
if t.state == ENDED then return { 0, HAS_ENDED, t.how } end
if t.state <= WAITING then return { 0, NOT_INSIDE } end
-- Until a reap frees the slot, the ticket still holds it.
r.h.n.completed = r.h.n.completed + 1
room.finish(r, person, t, COMPLETED)
return room.save(r, { HAS_ENDED, COMPLETED })
