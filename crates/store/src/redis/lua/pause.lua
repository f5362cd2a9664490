-- pause: takes a group or an action out of the order. group, action or "".
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
if id == '' then
  g.paused = true
  hold(g, 'P')
else
  local a = find_action(g, id)
  if not a then return { nothing(), 'no action' } end
  if not a.paused then a.paused, a.pz = true, (a.pz + 1) % 65536 end
end
return { flush(), 'ok' }
