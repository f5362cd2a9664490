-- refresh request: issues a version if nothing is pending, and returns what the caller has to send. Atomic, so that
-- exactly one of any number of readers sends (single-flight).
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: h or l, the version of the snapshot that the reader saw or "", when it read (ms)
-- RETURNS  1 and the version (publish), 2 and the version (upgrade), 3 and the pending version, or 4 with when the
--   last refresh was settled (ms) and how
-- BOUND  one key
local slot, snapshot, read_at = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[10])
local r, again = record.load_or_new(KEYS, ARGV)
if again then return again end
local s = r.s
local upgrade = slot == 'h' and s.l and not s.h
local queued = s.h or s.l
if s.k then return record.save(r, { 3, s.k[1] }) end
if queued and not upgrade then return record.save(r, { 3, queued[1] }) end
local m = s.m
if m and not upgrade and r.now < m[2] and (read_at <= m[1] or snapshot and snapshot < s.c) then
  return record.save(r, { 4, m[1], m[3] })
end
local version = record.next_version(r, snapshot)
s.i, s[slot], r.dirty = version, { version, r.now, 0 }, true
return record.save(r, { upgrade and 2 or 1, version })
