-- open_batch: group, base priority, its step, batch, threshold, keep results ("1"), callback or "".
local group_id, base_priority, step, id = next_arg(), next_number(), next_number(), next_arg()
local threshold, keep, callback = next_number(), next_arg() == '1', next_arg()
local g = find_or_create_group(group_id, base_priority, step)
local a = find_batch(g, id)
if a then
  local answer = 'already'
  if not is_open(a) then answer = 'finished'
  elseif a.cancelled then answer = 'cancelled'
  elseif a.sealed then answer = 'sealed' end
  return { nothing(), answer }
end
create_batch(g, id, threshold, keep, false, callback ~= '' and callback or nil)
return { flush(), 'new' }
