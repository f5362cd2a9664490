-- Registers a member as present (or leaving), and returns the live members.
-- KEYS  members <prefix>log:{<topic>}:members:<group> (hash: member to deadline in ms)
-- ARGV  now (ms or ''), member, span (session timeout in ms; 0 to leave)
-- RETURNS the live members, sorted
-- BOUND the members of the group
local members = KEYS[1]
local now, member, span = time(ARGV[1]), ARGV[2], tonumber(ARGV[3])

if span > 0 then
  call('HSET', members, member, whole(now + span))
else
  call('HDEL', members, member)
end
local live, known = {}, call('HGETALL', members)
for place = 1, #known, 2 do
  if tonumber(known[place + 1]) > now then
    live[#live + 1] = known[place]
  else
    call('HDEL', members, known[place])
  end
end
table.sort(live)
return live
