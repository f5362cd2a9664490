-- refresh send_failed: frees the slot of an event that could not be sent.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version
-- RETURNS  1, or 0 if there is no such unsent event
-- BOUND  one key
local version = tonumber(ARGV[8])
local r, again = record.load_known(KEYS, ARGV)
if again then return again end
if not r.s then return { 0 } end
local freed = 0
for _, slot in ipairs({ 'h', 'l' }) do
  local pending = r.s[slot]
  if pending and pending[1] == version and pending[3] == 0 then
    record.drop(r, slot)
    freed = 1
  end
end
return record.save(r, { freed })
