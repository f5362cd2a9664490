-- bulk confirm_completion: records that the completion callback was called; no aggregator gets the batch again.
-- Atomic, so that the batch leaves one set as it enters the other.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch
-- RETURNS  facts, then ok, no group, no batch, or lost if the batch is not decided
-- BOUND  one batch
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local a = find_batch(g, id)
if not a then return { nothing(), 'no batch' } end
if not a.fin then return { nothing(), 'lost' } end
if not a.conf then
  a.conf = true
  zdrop(K.aggregating, padded(a.seq))
  zput(K.finished_batches, padded(a.seq), a.fin)
end
return { flush(), 'ok' }
