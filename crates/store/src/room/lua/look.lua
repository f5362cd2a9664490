-- room look: tickets with their positions.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: people
-- RETURNS  0, then for each the ticket, or nothing
-- BOUND  the caller's batch, one pass over the bitmap
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local people, views, waiting = {}, {}, {}
for i = 6, #ARGV do people[#people + 1] = ARGV[i] end
room.read(r, people)
for i, person in ipairs(people) do
  local t = r.t[person]
  views[i] = t and room.view(r, t) or {}
  if t and t.state == WAITING then waiting[#waiting + 1] = views[i] end
end
room.count_ahead(r, waiting)
return { 0, views }
