-- adopt_limits: applies the rates of another shard, unless this one already has later ones. Version, record.
local version, record = next_number(), next_arg()
if limits_of(call('GET', K.limits)).v >= version then return { nothing() } end
enforce(cjson.decode(call('GET', K.settings)), limits_from(record, version))
return { flush() }
