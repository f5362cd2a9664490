-- bulk resume: puts a group or a batch back into the order. Atomic, so that parked jobs return together, in their
-- order.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch or ""
-- RETURNS  facts, then ok, no group or no batch
-- BOUND  one group; for a batch, the returned jobs of each flow in which it has parked jobs (numbers only)
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
if id == '' then
  g.paused = false
  unhold(g)
else
  local a = find_batch(g, id)
  if not a then return { nothing(), 'no batch' } end
  a.paused = false
  -- Parked jobs go back to the head of their flow together.
  for _, parked in ipairs(a.parked) do
    local flow = g.flows[parked.k]
    local from, to = names.parked(int(a.seq), parked.k), names.flow(int(g.seq), parked.k, 'r')
    if flow and parked.n > 0 then
      local rest = call('LRANGE', to, 0, -1)
      call('RENAME', from, to)
      in_parts('RPUSH', to, rest)
      flow.nr = flow.nr + parked.n
      enter_order(g, flow)
      -- Their type may have another queue by now.
      if M.remapped then
        move.begin()
        notify_timer = true
      end
    else
      call('DEL', from)
    end
  end
  a.parked = {}
end
return { flush(), 'ok' }
