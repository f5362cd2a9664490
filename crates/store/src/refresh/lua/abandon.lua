-- refresh abandon: returns a claim without settling.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version, owner
-- RETURNS  1, or 0 if it was not held
-- BOUND  one key
local version, owner = tonumber(ARGV[8]), ARGV[9]
local r, again = record.load_known(KEYS, ARGV)
if again then return again end
if not r.s then return { 0 } end
local claim = r.s.k
if not claim or claim[1] ~= version or claim[2] ~= owner then return record.save(r, { 0 }) end
record.drop(r, 'k')
return record.save(r, { 1 })
