-- refresh look: what is remembered of a record; what time has ended is for the caller to leave out.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load
-- RETURNS  the time (ms), then nothing if it is not known, or: issued, completed, superseded, LOW and HIGH (version,
--   since, sent), claim (version, owner, until), mark (at, until, settlement); an empty list for what there is not
-- BOUND  one key
local r = record.load(KEYS, ARGV)
local s = r.s
if not s then return { r.now } end
return { r.now, s.i, s.c, s.s, s.l or {}, s.h or {}, s.k or {}, s.m or {} }
