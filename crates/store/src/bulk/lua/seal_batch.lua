-- bulk seal_batch: declares that no more jobs come; an empty or finished batch is then complete. Atomic, so that
-- either the seal or the last job's end completes it, never both.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch or "" for the one opened last
-- RETURNS  facts, then ok, batch, its jobs and 1 if this completed it; or no group, no batch or none open
-- BOUND  one group and one batch
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
