-- bulk adopt_rates: sets the rates for the grants of several shards, unless later ones are set already. Atomic, so
-- that an older version never replaces a newer one.
-- KEYS  <prefix>{limit}:rate-limit
-- ARGV  version, what the limits set at run time override (JSON)
-- RETURNS  1 if they were set, 0 if later ones are set
-- BOUND  one hash field, at most the queues that may be set
local version = tonumber(ARGV[1])
local here = redis.call('HGET', KEYS[1], 'rates')
if limits_of(here).v >= version then return 0 end
redis.call('HSET', KEYS[1], 'rates', cmsgpack.pack({ v = version, over = cjson.decode(ARGV[2]) }))
return 1
