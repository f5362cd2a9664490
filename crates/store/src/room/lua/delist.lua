-- room delist: removes a room from the list of rooms, which is in its own slot.
-- KEYS  <prefix>rooms
-- ARGV  the name of the room
-- RETURNS  nothing
-- BOUND  one member
local name = ARGV[1]
redis.call('SREM', KEYS[1], name)
return {}
