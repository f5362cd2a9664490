-- adopt_limits: the rates that another shard has been told, unless later ones are here already. Version, record.
local version, record = next_number(), next_arg()
if limits_of(call('GET', K.limits)).v >= version then return { nothing() } end
enforce(cjson.decode(call('GET', K.settings)), limits_from(record, version))
return { flush() }
