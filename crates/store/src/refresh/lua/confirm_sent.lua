-- refresh confirm_sent: the log has the event; from here on a HIGH supersedes the LOW before it.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version
-- RETURNS  1, or 0 if it is no longer pending
-- BOUND  one key
local version = tonumber(ARGV[8])
local r, again = record.load_known(KEYS, ARGV)
if again then return again end
if not r.s then return { 0 } end
return record.save(r, { record.mark_sent(r, version) })
