-- refresh begin: a worker has the event in hand and wants to fetch. Atomic, so that one worker at a time fetches a
-- record. One that is not known is fetched: forgetting must lose nothing.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version, owner, how long the claim lasts (ms), h or l
-- RETURNS  0 obsolete, 1 go, or 2 with when the claim of another worker ends (ms)
-- BOUND  one key
local version, owner, lasts, priority = tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10]), ARGV[11]
local r, again = record.load_or_new(KEYS, ARGV)
if again then return again end
local s = r.s
record.see_version(r, version)
-- A HIGH replaces no HIGH: the one that replaces could be replaced in turn before anybody comes to it.
if version <= s.c or (priority == 'l' and version < s.s) then return record.save(r, { 0 }) end
-- It came out of the log, so it is in the log, whether or not the sender lived to say so.
record.mark_sent(r, version)
local claim = s.k
if claim and (claim[1] ~= version or claim[2] ~= owner) then return record.save(r, { 2, claim[3] }) end
s.k, r.dirty = { version, owner, r.now + lasts }, true
return record.save(r, { 1 })
