-- seal_batch: group, batch or "".
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local a
if id ~= '' then
  a = find_batch(g, id)
  if not a then return { nothing(), 'no batch' } end
elseif g.opens[1] then
  a = get_batch(g.opens[#g.opens])
else
  return { nothing(), 'none open' }
end
local complete = seal(a)
return { flush(), 'ok', a.id, a.c[1], complete and 1 or 0 }
