-- room extend: extends a visit. Atomic, so that it never shortens one.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: person, duration from now (ms)
-- RETURNS  signals, then 1 and until when (ms), 2 and how it ended, 3 not inside, 4 unknown
-- BOUND  one ticket
local IN, HAS_ENDED, NOT_INSIDE, UNKNOWN = 1, 2, 3, 4
local person, by = ARGV[6], tonumber(ARGV[7])
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local t = room.read_one(r, person)
if not t then return { 0, UNKNOWN } end
if t.state == ENDED then return { 0, HAS_ENDED, t.how } end
if t.state ~= INSIDE then return { 0, NOT_INSIDE } end
-- It has expired, although no reap has run yet.
if t.till <= r.now then return { 0, HAS_ENDED, EXPIRED } end
t.till = math.max(t.till, r.now + by)
room.changes(r, person)
return room.save(r, { IN, t.till })
