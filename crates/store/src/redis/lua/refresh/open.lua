-- refresh open: which schema the keys under a prefix have; the first one to open says so.
-- KEYS  <prefix>{refresh}:schema
-- ARGV  the schema that the caller knows
-- RETURNS  the schema that holds
-- BOUND  one key
redis.call('SET', KEYS[1], ARGV[1], 'NX')
return { redis.call('GET', KEYS[1]) }
