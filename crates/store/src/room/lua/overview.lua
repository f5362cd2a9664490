-- room overview: the room with everybody's position. One call, so that all of it is from one moment.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua
-- RETURNS  0, the time (ms), incarnation, status, when it opens (ms) or -1, the limits in effect and the configured
--   ones (seats or -1, inside, admissions each), how many are early, granted, inside, wave, voided, the event counts:
--   joined, admitted, redeemed, completed, left, left inside, lost, no-shows, expired; the changes (request, time,
--   who, why, seats, inside, admissions each); the first index of the bits, a multiple of 64, and the bits; the index
--   from which on undrawn people are ahead, and how many
-- BOUND  the remembered changes, and one bit for each index from the first waiting one to the last
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h, c, n = r.h, r.h.c, r.h.n
local changes = redis.call('LRANGE', r.changes, 0, -1)
for i, raw in ipairs(changes) do changes[i] = { cmsgpack.unpack(raw) } end
local bits = redis.call('GETRANGE', r.positions, (h.first - h.base) / 8, -1)
local seats, inside, rate = room.capacity(h)
return { 0, r.now, h.incarnation, h.status, c.opens or -1, seats, inside, rate, c.seats, c.inside, c.rate, h.early,
  h.granted, h.inside, h.wave, h.voided, n.joined, n.admitted, n.redeemed, n.completed, n.left, n.left_inside, n.lost,
  n.no_shows, n.expired, changes, h.first, bits, h.draw_end, room.undrawn(h) }
