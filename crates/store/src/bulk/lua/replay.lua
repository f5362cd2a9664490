-- bulk replay: returns a dead job to its flow with fresh attempts. Atomic, so that it is queued once however often
-- callers repeat the call.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, job
-- RETURNS  facts, then ok and the job's number; or no group, no job or not dead
-- BOUND  one job
local group_id, id = next_arg(), next_arg()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local seq = tonumber(call('HGET', names.ids(int(g.seq)), id) or nil)
local J = seq and get_job(seq)
if not J then return { nothing(), 'no job' } end
if J.state ~= DEAD then return { nothing(), 'not dead' } end
local a = get_batch(J.a)
if J.sp == FINISHED then
  take_finished(g)
  J.n = (J.n + 1) % 65536
end
zdrop(K.dead, dead_entry(J))
move.home(J)
local flow = flow_for(g, J.queue, J.v)
J.state, J.att, J.thr, J.at, J.text, J.dirty = WAITING, 0, 0, now, '', true
if a.cancelled then
  -- The cancellation was before this.
  J.fence = M.fence
  M.fence = M.fence + 1
end
flow_gains(flow, 1)
shift(g, DEAD, WAITING)
a.un = a.un + 1
if is_open(a) then a.c[3] = a.c[3] - 1 end
push_returned(g, flow, J)
return { flush(), 'ok', J.seq }
