-- room open: creates a room, or updates its settings; limits that override the configured ones stay. Atomic, so that
-- one of several processes that start at once creates it. Deadlines that depend on settings move by themselves.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then: incarnation, seats (-1: not counted), inside, admissions per second, when it opens (ms) or
--   "", how long a heartbeat is valid, an absent person keeps the ticket, a pass can be redeemed, a visit may last,
--   an ended ticket is remembered (ms each), maximum people waiting, 1 if the settings of an existing room are
--   updated, the status of a created one
-- RETURNS  signals, then 1 if it was created
-- BOUND  one key, however many wait
local incarnation = tonumber(ARGV[6])
local c = {
  seats = tonumber(ARGV[7]), inside = tonumber(ARGV[8]), rate = tonumber(ARGV[9]), opens = tonumber(ARGV[10]),
  presence = tonumber(ARGV[11]), grace = tonumber(ARGV[12]), pass = tonumber(ARGV[13]), stay = tonumber(ARGV[14]),
  remember = tonumber(ARGV[15]), most = tonumber(ARGV[16]),
}
local takes_over, status = ARGV[17] == '1', tonumber(ARGV[18])
local r = room.load(KEYS, ARGV)
if not r then
  local h = {
    incarnation = incarnation, c = c, o = {}, status = status, next = 0, draw = 0, draw_end = 0, wave = 0, voided = 0,
    granted = 0, inside = 0, early = 0, waiting = 0, base = 0, first = 0, last = 0, offset = 0,
    n = { joined = 0, admitted = 0, redeemed = 0, completed = 0, left = 0, left_inside = 0, lost = 0, no_shows = 0,
      expired = 0 },
  }
  return room.save(room.begin(KEYS, ARGV, h), { 1 })
end
if not takes_over then return { 0, 0 } end
local old = r.h.c
local same = old.opens == c.opens
for name, value in pairs(c) do same = same and old[name] == value end
if same then return { 0, 0 } end
r.h.c = c
room.notify_changed(r)
return room.save(r, { 0 })
