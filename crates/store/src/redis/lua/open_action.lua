-- open_action: group, base priority, its step, action, threshold, keep results ("1").
local group_id, base_priority, step, id = next_arg(), next_number(), next_number(), next_arg()
local threshold, keep = next_number(), next_arg() == '1'
local g = find_or_create_group(group_id, base_priority, step)
local a = find_action(g, id)
if a then
  local answer = 'already'
  if not is_open(a) then answer = 'finished'
  elseif a.cancelled then answer = 'cancelled'
  elseif a.sealed then answer = 'sealed' end
  return { nothing(), answer }
end
create_action(g, id, threshold, keep, false)
return { flush(), 'new' }
