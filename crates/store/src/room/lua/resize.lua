-- room resize: changes the limits, once per request. Atomic, so that relative changes add up.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: the request, how each of seats, inside and admissions per second changes ("" not, s set, a
--   add, r reset) with its number (seats of -1: not counted), the maximum of people, the maximum of admissions, how
--   many changes are remembered, who, why
-- RETURNS  signals, then 1 and the limits in effect (seats, inside, admissions), or 0, the limits in effect and the
--   configured ones: rejected
-- BOUND  the remembered changes
local request = ARGV[6]
local asked = { seats = { ARGV[7], tonumber(ARGV[8]) }, inside = { ARGV[9], tonumber(ARGV[10]) },
  rate = { ARGV[11], tonumber(ARGV[12]) } }
local most_people, most_admissions, remembered = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local who, why = ARGV[16], ARGV[17]
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h, c = r.h, r.h.c
for _, raw in ipairs(redis.call('LRANGE', r.changes, 0, -1)) do
  local done, _, _, _, seats, inside, rate = cmsgpack.unpack(raw)
  if done == request then return { 0, 1, seats, inside, rate } end
end

local held_seats, held_inside, held_rate = room.capacity(h)
local held = { seats = held_seats, inside = held_inside, rate = held_rate }
local o = {}
for name, change in pairs(asked) do
  local how, number = change[1], change[2]
  if how == '' then o[name] = h.o[name]
  elseif how == 's' then o[name] = number
  elseif how == 'a' then o[name] = held[name] + number
  end
end
local seats, inside, rate = o.seats or c.seats, o.inside or c.inside, o.rate or c.rate
-- Rejects a result below zero: a sum clamped at zero would be too large after the opposite change.
local below = asked.seats[1] == 'a' and (held.seats == UNCOUNTED or seats < 0) or inside < 0 or rate < 0
if below or seats > most_people or inside > most_people or rate > most_admissions then
  return { 0, 0, held.seats, held.inside, held.rate, c.seats, c.inside, c.rate }
end
h.o = o
redis.call('RPUSH', r.changes, cmsgpack.pack(request, r.now, who, why, seats, inside, rate))
redis.call('LTRIM', r.changes, -remembered, -1)
room.notify_changed(r)
return room.save(r, { 1, seats, inside, rate })
