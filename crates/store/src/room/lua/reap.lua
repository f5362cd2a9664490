-- room reap: ends and forgets what is due, by deadline and then by name. Atomic, so that a slot is freed once.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: maximum tickets, the time until which people absent for too long lose their tickets, or ""
-- RETURNS  signals, then the time, how many were lost, no-shows, expired, forgotten, then 1 if there is more to do
-- BOUND  as many tickets as the caller allows
local most, absent_by = tonumber(ARGV[6]), tonumber(ARGV[7])
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
room.keep_clock(r)
local h, now = r.h, r.now

-- Each set in order, with the time between its score and the deadline.
local function due_of(key, later)
  local found = redis.call('ZRANGEBYSCORE', key, '-inf', now - later, 'WITHSCORES', 'LIMIT', 0, most + 1)
  return { at = 1, found = found, later = later }
end
local sets = { due_of(r.slots, 0), due_of(r.ended, h.c.remember) }
if absent_by and now <= absent_by then sets[3] = due_of(r.present, h.c.grace) end

-- By bytes: the order of Lua's strings depends on the server's locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The next person, or nothing.
local function next_due()
  local best, person, at
  for _, set in ipairs(sets) do
    local other = set.found[set.at]
    if other then
      local due = tonumber(set.found[set.at + 1]) + set.later
      if not best or due < at or due == at and before(other, person) then best, person, at = set, other, due end
    end
  end
  if best then best.at = best.at + 2 end
  return person
end

local people = {}
while #people < most do
  local person = next_due()
  if not person then break end
  people[#people + 1] = person
end
local more = #people == most and next_due() and 1 or 0
if #people == 0 then return { 0, now, 0, 0, 0, 0, more } end

room.read(r, people)
local n, lost, no_shows, expired, forgotten = h.n, 0, 0, 0, 0
for _, person in ipairs(people) do
  local t = r.t[person]
  if t.state == ENDED then
    forgotten = forgotten + 1
    room.become(r, person, t, nil)
  elseif t.state <= WAITING then
    lost, n.lost = lost + 1, n.lost + 1
    room.finish(r, person, t, LOST)
  elseif t.state == GRANTED then
    no_shows, n.no_shows = no_shows + 1, n.no_shows + 1
    room.finish(r, person, t, NO_SHOW)
  else
    expired, n.expired = expired + 1, n.expired + 1
    room.finish(r, person, t, EXPIRED)
  end
end
return room.save(r, { now, lost, no_shows, expired, forgotten, more })
