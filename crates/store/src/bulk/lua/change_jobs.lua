-- bulk change_jobs: an operator's command on single jobs of a group: cancel, run now, reschedule, reprioritise. Atomic, so
-- that no worker leases a job while it changes.
-- KEYS  <prefix>{<shard>}:meta
-- ARGV  as base.lua, then: group, command (cancel, run_now, reschedule, reprioritise), its time (ms) or priority or "",
--   then the ids of the jobs
-- RETURNS  facts, then ok, and for each the number of its state; or no job; or state with its number, if the job is in a
--   state that does not take the command; or expires with the time (ms) before which it had to start; or no group
-- BOUND  the caller's jobs, plus stale entries at the heads of the flows that it touches
local group_id, command, to = next_arg(), next_arg(), next_number()
local g = find_group(group_id)
if not g then return { nothing(), 'no group' } end
local out, count, first = {}, #ARGV - arg, arg

local FITS = {
  cancel = { [WAITING] = true, [READY] = true, [RUNNING] = true, [DELAYED] = true },
  run_now = { [DELAYED] = true },
  reschedule = { [WAITING] = true, [READY] = true, [DELAYED] = true },
  reprioritise = { [WAITING] = true, [READY] = true, [RUNNING] = true, [DELAYED] = true },
}
-- A retry of the same call, after the first attempt did it.
local function done_before(J)
  if not retried then return false end
  if command == 'cancel' then return J.state == DEAD and J.death == DIED.CANCELLED end
  return command == 'run_now' or (command == 'reschedule' and to <= now)
end

local function wait_again(J)
  detach(J)
  set_waiting(g, J)
  J.text = ''
  move.home(J)
  push_returned(g, g.flows[J.queue .. ':' .. J.v], J)
end
local function schedule(J, run_at)
  detach(J)
  set_waiting(g, J)
  J.state, J.delay, J.at, J.text = DELAYED, DELAY.SCHEDULED, run_at, ''
  zput(K.delayed, padded(J.seq), run_at)
  throughput.due(g.flows[J.queue .. ':' .. J.v], run_at)
  M.queues[J.queue].dl = M.queues[J.queue].dl + 1
  shift(g, WAITING, DELAYED)
  notify_timer = true
end
local function reprioritise(J, priority)
  if J.v == priority then return end
  local a, _, old = home(J)
  -- A delayed job that is in no flow, and a running one, come to the new flow later.
  local elsewhere = spot(J, a) == NOWHERE
  if not elsewhere then
    detach(J)
    set_waiting(g, J)
  end
  local new = flow_for(g, J.queue, priority)
  flow_gains(new, 1)
  local flags = string.byte(J.blob, 14)
  J.v, J.dirty = priority, true
  J.blob = string.sub(J.blob, 1, 13) .. string.char(flags - flags % 4 + priority - 1) .. string.sub(J.blob, 15)
  call('HSET', K.job, J.seq, J.blob)
  if elsewhere and J.state == DELAYED then
    throughput.undue(old, J.at)
    throughput.due(new, J.at)
  end
  flow_loses(g, old)
  if not elsewhere then push_returned(g, new, J) end
end

local function change(J)
  if not FITS[command][J.state] then
    if done_before(J) then return J.state end
    return { 'state', J.state }
  end
  if command == 'cancel' then
    if J.state == RUNNING then
      J.doomed, J.dirty = true, true
    else
      detach(J)
      die(J, DIED.CANCELLED, '')
    end
  elseif command == 'reprioritise' then
    reprioritise(J, to)
  elseif command == 'run_now' or to <= now then
    wait_again(J)
  elseif J.exp and not J.lifted and J.exp <= to then
    return { 'expires', J.exp }
  else
    schedule(J, to)
  end
  return J.state
end

for from = 1, count, 4000 do
  local ids, seqs = {}, {}
  for i = from, min(count, from + 3999) do ids[#ids + 1] = ARGV[first + i] end
  local got = call('HMGET', names.ids(int(g.seq)), unpack(ids))
  for i = 1, #ids do seqs[#seqs + 1] = got[i] and tonumber(got[i]) or nil end
  load_jobs(seqs)
  for i = 1, #ids do
    local J = got[i] and get_job(tonumber(got[i]))
    out[from + i - 1] = J and change(J) or { 'no job' }
  end
end
drop_stale_heads()
return { flush(), 'ok', out }
