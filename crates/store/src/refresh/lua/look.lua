-- refresh look: the state of a record; the caller drops expired parts.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load
-- RETURNS  the time (ms), then nothing if it is unknown, or: issued, completed, superseded, LOW and HIGH (version,
--   since, sent), claim (version, owner, until), mark (at, until, settlement); an empty list for an absent part
-- BOUND  one key
local r = record.load(KEYS, ARGV)
local s = r.s
if not s then return { r.now } end
return { r.now, s.i, s.c, s.s, s.l or {}, s.h or {}, s.k or {}, s.m or {} }
