-- room join: issues tickets, or finds those that people have. Atomic, so that no index is assigned twice and nobody
-- gets two.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then for each: person, 1 if it opens a stream + 2 if it takes a new ticket when the last one has
--   ended, draw
-- RETURNS  signals, then for each: 1 and the ticket (new), 2 and the ticket (existing), 3 and the ticket (ended), 4
--   closed, 5 sold out, 6 full
-- BOUND  the caller's batch; one pass over the bitmap if somebody returns
local STREAMS = 2 ^ 20
local NEW, OWN, HAS_ENDED, IS_CLOSED, SOLD_OUT, FULL = 1, 2, 3, 4, 5, 6
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
local h, people = r.h, {}
for i = 6, #ARGV, 3 do people[#people + 1] = ARGV[i] end
room.read(r, people)

local function refuses()
  if h.status == CLOSED then return IS_CLOSED end
  if room.sold_out(h) then return SOLD_OUT end
  if h.waiting + h.early >= h.c.most then return FULL end
end

local function issue(person, stream, draw)
  room.reserve_indices(r)
  -- Stream numbers contain the index, so those of one ticket never equal those of the person's next one.
  local t = { index = h.next, joined = r.now, stream = h.next * STREAMS + stream, present = r.now + h.c.presence }
  h.next, h.n.joined = h.next + 1, h.n.joined + 1
  room.notify_promote(r)
  if room.is_early(r) then
    t.draw = draw
    room.become(r, person, t, EARLY)
  else
    -- The newest index of all: everybody is ahead of it, and nobody leaves while this call runs.
    t.ahead = h.waiting + room.undrawn(h)
    room.become(r, person, t, WAITING)
  end
  return t
end

local returned = {}
local function view(t)
  local seen = room.view(r, t)
  if t.state == WAITING and not t.ahead then
    -- Others of this call may join early after this one.
    seen.undrawn = room.undrawn(h)
    returned[#returned + 1] = seen
  end
  return seen
end

local answers = {}
for i, person in ipairs(people) do
  local flags, draw = tonumber(ARGV[3 * i + 4]), tonumber(ARGV[3 * i + 5])
  local stream, again = flags % 2, flags >= 2
  local t = r.t[person]
  local refused = (not t or t.state == ENDED and again) and refuses()
  if t and t.state ~= ENDED then
    if stream == 1 then
      local older_may_be_open = t.stream % STREAMS > 0 and not (t.state <= WAITING and t.present <= r.now)
      t.stream = t.stream + 1
      room.changes(r, person)
      if older_may_be_open then room.notify_taken_over(r, person, t) end
    end
    room.renew(r, person, t)
    answers[i] = { OWN, view(t) }
  elseif t and not again then
    answers[i] = { HAS_ENDED, view(t) }
  elseif refused then
    answers[i] = { refused }
  else
    answers[i] = { NEW, view(issue(person, stream, draw)) }
  end
end
room.count_ahead(r, returned)
if #r.changed == 0 then return { 0, answers } end
return room.save(r, { answers })
