-- room schema: the schema version of the keys under a prefix; the first process to open sets it. Atomic, so that of
-- two versions that start at once one is rejected.
-- KEYS  <prefix>schema
-- ARGV  the schema version of the caller
-- RETURNS  the schema version in effect
-- BOUND  one key
local known = ARGV[1]
redis.call('SET', KEYS[1], known, 'NX')
return { redis.call('GET', KEYS[1]) }
