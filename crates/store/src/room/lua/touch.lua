-- room touch: heartbeats of streams, and their ends. Atomic, so that an older stream never overrides a newer one.
-- KEYS  <prefix>{<room>}:head
-- ARGV  as head.lua, then for each: person, stream, 1 if present or 0 if the connection is gone
-- RETURNS  signals, then for each: 1 kept, 2 superseded, 3 gone
-- BOUND  the caller's batch
local KEPT, SUPERSEDED, GONE = 1, 2, 3
local r = room.load(KEYS, ARGV)
if not r then return room.unknown() end
room.keep_clock(r)
local people = {}
for i = 6, #ARGV, 3 do people[#people + 1] = ARGV[i] end
room.read(r, people)
local answers = {}
for i, person in ipairs(people) do
  local stream, there = tonumber(ARGV[3 * i + 4]), ARGV[3 * i + 5] == '1'
  local t = r.t[person]
  if not t then
    answers[i] = GONE
  elseif t.stream ~= stream then
    answers[i] = SUPERSEDED
  elseif t.state == ENDED then
    answers[i] = GONE
  else
    if there then
      room.renew(r, person, t)
    elseif t.state <= WAITING then
      room.set_present(r, person, t, math.min(t.present, r.now))
    end
    answers[i] = KEPT
  end
end
if #r.changed == 0 then return { 0, answers } end
return room.save(r, { answers })
