-- refresh extend: extends a claim.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version, owner, duration of the claim from now (ms)
-- RETURNS  1, or 0 if it is lost
-- BOUND  one key
local version, owner, lasts = tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10])
local r, again = record.load_known(KEYS, ARGV)
if again then return again end
local claim = r.s and r.s.k
if not r.s then return { 0 } end
if not claim or claim[1] ~= version or claim[2] ~= owner then return record.save(r, { 0 }) end
claim[3], r.dirty = math.max(claim[3], r.now + lasts), true
return record.save(r, { 1 })
