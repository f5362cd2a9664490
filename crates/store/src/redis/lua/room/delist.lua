-- room delist: a room that is gone leaves the list of rooms, which is in a slot of its own.
-- KEYS  <prefix>rooms
-- ARGV  the name of the room
-- RETURNS  nothing
-- BOUND  one member
local name = ARGV[1]
redis.call('SREM', KEYS[1], name)
return {}
