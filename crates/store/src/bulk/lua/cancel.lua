-- bulk cancel: ends every job of a group or a batch that is not running. Atomic, so that the batch is cancelled
-- before the first of its jobs ends, and no pick starts another. release_due continues what is left.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch or "", maximum jobs
-- RETURNS  facts, then ok, how many were cancelled, how many are running, 1 if jobs are left; or no group or no batch
-- BOUND  the maximum, 20,000 numbers of deleted jobs per batch, and the group's batches
local group_id, id, budget = next_arg(), next_arg(), next_number()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local all = {}
if id ~= '' then
  all[1] = find_batch(g, id)
  if not all[1] then return { nothing(), 'no batch' } end
else
  for i, seq in ipairs(call('ZRANGE', names.batches(int(g.seq)), 0, -1)) do all[i] = get_batch(tonumber(seq)) end
end
for _, a in ipairs(all) do cancelling.begin(a) end
local cancelled, running, more = 0, 0, false
for _, a in ipairs(all) do
  local left, ended, run = cancelling.jobs(a, budget)
  budget, cancelled, running = left, cancelled + ended, running + run
  more = more or a.cur ~= nil
end
drop_stale_heads()
return { flush(), 'ok', cancelled, running, more and 1 or 0 }
