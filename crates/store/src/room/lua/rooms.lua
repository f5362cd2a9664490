-- room rooms: the name of every room, unordered.
-- KEYS  <prefix>rooms
-- ARGV  none
-- RETURNS  the names
-- BOUND  the number of rooms
return redis.call('SMEMBERS', KEYS[1])
