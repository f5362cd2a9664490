-- bulk configure_group: sets the base priority and the limits of a group. Atomic, so that the weights in the order
-- match the group's own at all times.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, base priority or "", its step (of 0 without one), "1" with limits, and then those: as
--   text or "" without any, rate (per second) or "", running jobs or "", number of queues, for each: name, rate or "",
--   running jobs or ""
-- RETURNS  facts, then ok
-- BOUND  one group, its flows and its queues
local group_id, base_priority, step = next_arg(), next_number(), next_number()
local given = next_arg() == '1'
local g = find_or_create_group(group_id, base_priority or 0, step)
if base_priority then
  local change = 1048576 / step - 1048576 / g.step
  if is_active(g) then M.w = max(0, M.w + change) end
  for _, flow in pairs(g.flows) do
    if flow.pk then order_of(flow).w = max(0, order_of(flow).w + change) end
  end
  g.bp, g.step = base_priority, step
end
if given then held.read_limits(g) end
-- A raised limit takes effect at once; if the group is still at a limit, the next pick holds it again.
unhold(g)
pair.unhold_all(g)
return { flush(), 'ok' }
