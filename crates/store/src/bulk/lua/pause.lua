-- bulk pause: takes a group or a batch out of the order. Atomic, so that no pick after it starts one of their jobs.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch or ""
-- RETURNS  facts, then ok, no group or no batch
-- BOUND  one group; jobs of a paused batch are parked later, as picks find them
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
if id == '' then
  g.paused = true
  hold(g, 'P')
  throughput.rest(g)
else
  local a = find_batch(g, id)
  if not a then return { nothing(), 'no batch' } end
  if not a.paused then a.paused, a.pz = true, (a.pz + 1) % 65536 end
end
return { flush(), 'ok' }
