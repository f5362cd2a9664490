-- room remove: removes a room that is over, with everything it remembers. Atomic, so that nobody joins meanwhile.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua
-- RETURNS  signals, then 1 removed, 2 neither closed nor sold out, 3 in use, then how many wait, how many hold a slot
-- BOUND  ten keys, freed by the server in the background
local maybe_ran = ARGV[2] == '1'
local r = room.load(KEYS, ARGV)
if not r then
  -- Removed by the first attempt, whose reply was lost.
  if maybe_ran then return { 0, 1, 0, 0 } end
  return room.unknown()
end
local h = r.h
local waiting, inside = h.waiting + h.early, h.granted + h.inside
if h.status ~= CLOSED and not room.sold_out(h) then return { 0, 2, waiting, inside } end
if waiting + inside > 0 then return { 0, 3, waiting, inside } end
redis.call('UNLINK', r.head, r.tickets, r.queue, r.positions, r.early, r.present, r.slots, r.ended, r.recent, r.changes)
return { 0, 1, 0, 0 }
