-- adopt_rates: sets the rates for grants with several shards, unless later ones are already set.
-- KEYS[1] is <prefix>{limit}:rate-limit. Version, record.
local version = tonumber(ARGV[1])
local here = redis.call('HGET', KEYS[1], 'rates')
if limits_of(here).v >= version then return 0 end
redis.call('HSET', KEYS[1], 'rates', cmsgpack.pack(limits_from(ARGV[2], version)))
return 1
