-- refresh open: the schema version of the keys under a prefix; the first process to open sets it.
-- KEYS  <prefix>{refresh}:schema
-- ARGV  the schema version of the caller
-- RETURNS  the schema version in effect
-- BOUND  one key
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return { redis.call('GET', KEYS[1]) }
