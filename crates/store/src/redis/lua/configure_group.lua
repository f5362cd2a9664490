-- configure_group: group, base priority or "", step of it or of 0, "1" with ceilings (starts per window or "",
-- running at once or "").
local group_id, base_priority, step = next_arg(), next_number(), next_number()
local given, starts, leased = next_arg() == '1', next_number(), next_number()
local g = find_or_create_group(group_id, base_priority or 0, step)
if base_priority then
  local change = 1048576 / step - 1048576 / g.step
  if is_active(g) then M.w = max(0, M.w + change) end
  for _, line in pairs(g.lines) do
    if line.pk then order_of(line).w = max(0, order_of(line).w + change) end
  end
  g.bp, g.step = base_priority, step
end
if given then g.cw, g.cl = starts, leased end
-- A raised ceiling takes effect at once; if the group is still at a ceiling, the next pick holds it again.
unhold(g)
return { flush(), 'ok' }
