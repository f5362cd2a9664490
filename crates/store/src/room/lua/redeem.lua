-- room redeem: redeems a pass, once. Atomic, so that of two visitors with the same pass one gets in.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: person, index, wave, session or ""
-- RETURNS  signals, then 1 and until when (ms) if inside, 2 already redeemed, 3 voided, 4 too late, 5 unknown
-- BOUND  one ticket
local IN, ALREADY, VOIDED, TOO_LATE, UNKNOWN = 1, 2, 3, 4, 5
local person, index, wave, session = ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9]
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h, t = r.h, room.read_one(r, person)
if not t or t.index ~= index or t.state <= WAITING then return { 0, UNKNOWN } end
if t.state == ENDED then
  if t.how == NO_SHOW then return { 0, TOO_LATE } end
  return { 0, (t.how == COMPLETED or t.how == EXPIRED) and ALREADY or UNKNOWN }
end
-- A pass from before the ticket was reissued another.
if t.wave ~= wave then return { 0, wave <= h.voided and VOIDED or UNKNOWN } end
if t.state == INSIDE then
  local same = session ~= '' and t.session == session or r.again and t.request == r.request
  return { 0, same and IN or ALREADY, t.till }
end
if wave <= h.voided then return { 0, VOIDED } end
if t.till <= r.now then return { 0, TOO_LATE } end
t.till, t.session, t.request = r.now + h.c.stay, session, session == '' and r.request or ''
h.n.redeemed = h.n.redeemed + 1
room.become(r, person, t, INSIDE)
return room.save(r, { IN, t.till })
