-- refresh begin: a worker received the event and wants to fetch. Atomic, so that one worker at a time fetches a
-- record. An unknown record is fetched: forgetting must lose nothing.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version, owner, duration of the claim (ms), h or l
-- RETURNS  0 obsolete, 1 go, or 2 with when the claim of another worker expires (ms)
-- BOUND  one key
local version, owner, lasts, priority = tonumber(ARGV[8]), ARGV[9], tonumber(ARGV[10]), ARGV[11]
local r, again = record.load_or_new(KEYS, ARGV)
if again then return again end
local s = r.s
record.see_version(r, version)
-- A HIGH supersedes no HIGH: otherwise each could be superseded before a worker reaches it.
if version <= s.c or (priority == 'l' and version < s.s) then return record.save(r, { 0 }) end
-- It came out of the log, so it is in the log, even if the sender died before confirming.
record.mark_sent(r, version)
local claim = s.k
if claim and (claim[1] ~= version or claim[2] ~= owner) then return record.save(r, { 2, claim[3] }) end
s.k, r.dirty = { version, owner, r.now + lasts }, true
return record.save(r, { 1 })
