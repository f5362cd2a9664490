-- room promote: draws some of the early tickets, then admits the next people within every limit. Atomic,
-- so that several processes together admit no more, and nobody present is skipped.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: maximum admissions, how many early tickets one call draws, how many absent people it
--   inspects beyond those it admits
-- RETURNS  signals, why it stopped, until when that holds (ms) or 0, then a list with person and index of each
-- BOUND  one draw step, then as many as it may admit and inspect
local MORE, NOBODY, FULL_INSIDE, NO_SEATS, SOLD_OUT, RATE, NOT_OPEN, IS_PAUSED, IS_CLOSED = 1, 2, 3, 4, 5, 6, 7, 8, 9
local SECOND = 1000
-- People read at once: few at first, because mostly the room is full inside.
local FEW, SOME = 8, 128
local most, draw_step, most_absent = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
room.keep_clock(r)
local h = r.h

if h.status == PAUSED then return { 0, IS_PAUSED, 0, {} } end
if h.status == CLOSED then return { 0, IS_CLOSED, 0, {} } end
if room.is_early(r) then return { 0, NOT_OPEN, h.c.opens, {} } end

-- Draws some of the early tickets and assigns their indices. Returns true if all of them are drawn.
local function draw()
  if h.early == 0 then
    -- Those who left before the draw leave unused indices.
    h.draw = h.draw_end
    return true
  end
  local people = redis.call('ZRANGE', r.early, 0, draw_step - 1)
  room.read(r, people)
  for _, person in ipairs(people) do
    room.reserve_indices(r)
    local t = r.t[person]
    t.index, h.draw = h.draw, h.draw + 1
    room.become(r, person, t, WAITING)
    r.update = true
  end
  if #people < draw_step then h.draw = h.draw_end end
  return h.early == 0
end

-- Drawn indices are written before anybody is admitted: the order is read from there.
local unused = h.draw < h.draw_end
local drawn = draw()
if r.update or unused then room.write(r) end

local granted, passed = {}, {}
local function stopped(stop, at)
  room.many('ZREM', r.queue, passed)
  if #granted == 0 and not r.update then return { 0, stop, at, granted } end
  r.update = true
  return room.save(r, { stop, at, granted })
end
if not drawn then return stopped(MORE, 0) end
if room.sold_out(h) then return stopped(SOLD_OUT, 0) end

-- The next person. Inspected people stay in the sorted set until the end.
local chunk, taken, seen = {}, 0, 0
local function next_in_queue()
  if taken == #chunk then
    chunk = redis.call('ZRANGE', r.queue, seen, seen + (seen == 0 and FEW or SOME) - 1)
    room.read(r, chunk)
    taken = 0
  end
  taken = taken + 1
  if not chunk[taken] then return nil end
  seen = seen + 1
  return chunk[taken]
end

-- Admissions of the last second: read only when every other limit allows more.
local recent, in_second
local function read_recent()
  local raw = redis.call('GET', r.recent)
  recent, in_second = {}, 0
  local all = raw and cmsgpack.unpack(raw) or {}
  for i = 1, #all, 2 do
    if all[i] + SECOND > r.now then
      recent[#recent + 1], recent[#recent + 2] = all[i], all[i + 1]
      in_second = in_second + all[i + 1]
    end
  end
end

local function stops()
  local full = room.full(h)
  if full then return full == 'inside' and FULL_INSIDE or NO_SEATS, 0 end
  if not recent then read_recent() end
  local _, _, rate = room.capacity(h)
  if in_second >= rate then return RATE, (recent[1] or r.now) + SECOND end
end

local function admit(person, t)
  if #granted == 0 then h.wave = h.wave + 1 end
  t.wave, t.at, t.till, t.request = h.wave, r.now, r.now + h.c.pass, ''
  room.become(r, person, t, GRANTED)
  granted[#granted + 1], granted[#granted + 2] = person, t.index
  h.n.admitted, in_second = h.n.admitted + 1, in_second + 1
  local n = #recent
  if recent[n - 1] == r.now then recent[n] = recent[n] + 1 else recent[n + 1], recent[n + 2] = r.now, 1 end
end

local inspected, stop, at = 0, nil, nil
while not stop do
  if #granted >= 2 * most or inspected >= most + most_absent then
    stop = MORE
  else
    inspected = inspected + 1
    local person = next_in_queue()
    local t = person and r.t[person]
    if not person then
      stop = NOBODY
    elseif t.present <= r.now then
      -- Absent: the next heartbeat puts the person back.
      passed[#passed + 1] = person
    else
      stop, at = stops()
      if not stop then admit(person, t) end
    end
  end
end
if #granted > 0 then redis.call('SET', r.recent, cmsgpack.pack(recent)) end
return stopped(stop, at or 0)
