-- bulk snapshot_congestion: adds an entry to the history of every group that has throttled jobs, or had some in its
-- last entry. Atomic, so that entry and counts are of one moment.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua
-- RETURNS  facts, then how many entries were added
-- BOUND  a thousand groups; the next call starts with those not reached
local oldest, added = now - C.stats_age, 0
M.snap = now
for _, text in ipairs(call('ZRANGE', K.congested, 0, 999)) do
  local g = get_group(tonumber(text))
  local last = g.ht and g.ht >= oldest and g.hl or 0
  if g.cong > 0 or last > 0 then
    local key = names.history(int(g.seq))
    local wait = next_backoff(g)
    call('RPUSH', key, struct.pack('>I7I4I7I7', now, g.cong, wait, speed_of(g)))
    g.hl, g.ht = g.cong, now
    added = added + 1
    while true do
      local first = call('LINDEX', key, 0)
      if not first or struct.unpack('>I7', first) >= oldest then break end
      call('LPOP', key)
    end
  end
  if g.cong == 0 then zdrop(K.congested, text) end
end
return { flush(), added }
