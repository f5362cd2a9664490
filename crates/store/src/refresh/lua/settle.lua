-- refresh settle: settles a refresh. Everything up to its version is completed, and requests of readers who read
-- before are absorbed for a while. Valid even if the claim was lost: a written result stays written.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version, how long the mark absorbs (ms), how it ended
-- RETURNS  1 settled, 0 if this version or a later one was settled before
-- BOUND  one key
local version, absorbs, settlement = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10]
local r, again = record.load_or_new(KEYS, ARGV)
if again then return again end
local s = r.s
if s.k and s.k[1] <= version then record.drop(r, 'k') end
if version <= s.c then return record.save(r, { 0 }) end
record.see_version(r, version)
s.c = version
for _, slot in ipairs({ 'l', 'h' }) do
  if s[slot] and s[slot][1] <= version then record.drop(r, slot) end
end
s.m, r.dirty = { r.now, r.now + absorbs, settlement }, true
return record.save(r, { 1 })
