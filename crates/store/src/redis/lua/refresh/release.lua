-- refresh release: frees the slot and the claim of exactly this version. Compare and delete in one step, so that of
-- several callers one is told.
-- KEYS  <prefix>upd:{<record>}
-- ARGV  as record.load, then: version
-- RETURNS  1, or 0 if it held nothing
-- BOUND  one key
local version = tonumber(ARGV[8])
local r, again = record.load_known(KEYS, ARGV)
if again then return again end
if not r.s then return { 0 } end
local freed = 0
for _, field in ipairs({ 'h', 'l', 'k' }) do
  local held = r.s[field]
  if held and held[1] == version then
    record.drop(r, field)
    freed = 1
  end
end
return record.save(r, { freed })
