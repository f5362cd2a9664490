-- bulk purge: deletes a dead job at once. Atomic, so that its data and its counts go together.
-- Its entry in the list of finished jobs is recognised as stale when it reaches the head.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, job
-- RETURNS  facts, then ok, no group, no job, not dead, or kept with the batch that needs it
-- BOUND  one job, and up to 20 runs of a thousand job numbers of its batch
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
-- A retry, after the first attempt did it: the name may belong to another job by now.
if retried and g.pq == request then return { nothing(), 'ok' } end
local seq = tonumber(call('HGET', names.ids(int(g.seq)), id) or nil)
local J = seq and get_job(seq)
if not J then return { nothing(), 'no job' } end
if J.state ~= DEAD then return { nothing(), 'not dead' } end
local a = get_batch(J.a)
-- A batch that keeps its results promises every job to the reducer.
if a.keep and a.status <= BATCH.AGGREGATING then return { nothing(), 'kept', a.id } end
g.pq = request
drop_job(J)
write_dropped()
return { flush(), 'ok' }
