-- room enlist: adds an existing room to the list of rooms, which is in its own slot.
-- KEYS  <prefix>rooms
-- ARGV  the name of the room
-- RETURNS  nothing
-- BOUND  one member
local name = ARGV[1]
redis.call('SADD', KEYS[1], name)
return {}
