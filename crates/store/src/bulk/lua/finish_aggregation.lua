-- bulk finish_aggregation: stores the aggregator's summary and decides the batch. Atomic, so that a claim that has
-- passed to another aggregator decides nothing.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, batch, claim, "1" with the summary or "0" with the error
-- RETURNS  facts, then ok and the status; or no group, no batch or lost
-- BOUND  one batch
local group_id, id, claim, fine, text = next_arg(), next_arg(), next_number(), next_arg() == '1', next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local a = find_batch(g, id)
if not a then return { nothing(), 'no batch' } end
if retried and a.claim == claim and a.status > BATCH.AGGREGATING then return { nothing(), 'ok', a.status } end
if a.claim ~= claim or a.status ~= BATCH.AGGREGATING then return { nothing(), 'lost' } end
if fine then
  call('HSET', K.summary, a.seq, text)
  a.status = a.c[3] > 0 and a.c[3] * 100 >= a.c[1] * a.th and BATCH.FAILED or BATCH.COMPLETED
else
  keep_error(a, 'aggregation failed: ' .. text)
  a.status = BATCH.FAILED
end
if a.cancelled then a.status = BATCH.CANCELLED end
a.fin = now
forget_dropped(g, a)
-- A group without unfinished jobs starts its next batch with clean statistics.
if not is_active(g) then clear_stats(g) end
return { flush(), 'ok', a.status }
