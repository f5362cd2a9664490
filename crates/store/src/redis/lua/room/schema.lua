-- room schema: which schema the keys under a prefix have; the first one to open says so. Atomic, so that of two versions
-- that begin at once one is refused.
-- KEYS  <prefix>schema
-- ARGV  the schema that the caller knows
-- RETURNS  the schema that holds
-- BOUND  one key
local known = ARGV[1]
redis.call('SET', KEYS[1], known, 'NX')
return { redis.call('GET', KEYS[1]) }
